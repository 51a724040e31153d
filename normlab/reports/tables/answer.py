"""The answer of a table in a sentence: how each row's main score compares with the baseline's.

`main_result.py` decides what is stated; this file puts it into words. For a single seed, the
sentence gives the bare difference and says that it is one seed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from normlab.metrics.score_text import heading, score_text, unit_of_differences
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.setting_names import setting_with_values
from normlab.reports.tables.axes import values_at
from normlab.reports.tables.main_result import (
    AlongAxis,
    BaselineNotLearned,
    BestAndWorst,
    ByCount,
    Comparisons,
    MainResult,
    NothingLearned,
    OneScore,
    Stretch,
    main_result,
)
from normlab.reports.tables.score_table import ScoreTable
from normlab.reports.tables.standing import PointDifference, Standing

_COUNTS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_STANDINGS = {
    Standing.BELOW: "below",
    Standing.ABOVE: "above",
    Standing.OPEN: "not clearly different",
    Standing.UNTRAINED: "not compared (near the untrained baseline)",
    Standing.UNTRAINED_BASELINE: (
        "not compared (the row to compare with is near the untrained baseline)"
    ),
    Standing.DIVERGED: "seeds that diverged",
    Standing.UNKNOWN: "not compared",
}


def answer(table: ScoreTable, baseline: RowName) -> str:
    """Return a sentence on a table's first score, or "" if no rows or points can be compared."""
    if (result := main_result(table)) is None:
        return ""
    text = "; ".join([*_clauses(result, baseline.in_sentence), _seeds(result.seeds)])
    return f"{text[0].upper()}{text[1:]}."


def _clauses(result: MainResult, baseline: str) -> list[str]:
    """Return the parts of the answer, except the number of seeds."""
    score, finding = heading(result.column), result.finding
    if isinstance(finding, NothingLearned):
        why = f"nothing is clearly better than the untrained baseline in {score}"
        return [f"{why}, so differences say nothing about norms"]
    if isinstance(finding, BaselineNotLearned):
        near = f"in {score}, {baseline} is near the untrained baseline"
        return [f"{near}, so no row is compared with it"]
    if isinstance(finding, OneScore):
        return [f"the {score} of {finding.row.in_sentence} is {finding.value}"]
    words = _Wording(result)
    if isinstance(finding, BestAndWorst):
        best, worst = (
            f"{words.place([point])}({score_text(mean, result.column)})"
            for point, mean in (finding.best, finding.worst)
        )
        return [f"the {score} of {finding.row.in_sentence} is best {best} and worst {worst}"]
    return words.comparisons(finding, baseline)


def _seeds(counts: Sequence[int]) -> str:
    """Return the number of seeds: `three to five seeds`."""
    seeds = " to ".join(map(_count, dict.fromkeys((counts[0], counts[-1]))))
    if counts == [1]:
        return f"{seeds} seed, so another seed may say otherwise"
    return f"{seeds} seeds"


class _Mention(NamedTuple):
    """The baseline and the score, if a clause is the first that has to name them, or ""."""

    baseline: str = ""
    score: str = ""


@dataclass(frozen=True)
class _Wording:
    """Puts the comparisons of a table's rows into words."""

    result: MainResult

    @property
    def unit(self) -> str:
        return unit_of_differences(self.result.column)

    @property
    def score(self) -> str:
        """Return the score's name, with `(lower is better)` if it is."""
        lower = " (lower is better)" if self.result.lower_is_better else ""
        return heading(self.result.column) + lower

    def comparisons(self, finding: Comparisons, baseline: str) -> list[str]:
        """Return a clause for each row that is compared, and the number of others.

        With axes, each clause begins with points and names the baseline, and the first one names
        the score. Without axes, both are named before the first clause, unless a single row can
        name the baseline itself.
        """
        first, *others = finding.rows
        if self.result.axes:
            clauses = [
                self.compared_row(first, _Mention(baseline, self.score)),
                *(self.compared_row(row, _Mention(baseline)) for row in others),
            ]
        elif not others and not finding.others:
            clauses = [f"in {self.score}, {self.compared_row(first, _Mention(baseline))}"]
        else:
            clauses = [self.compared_row(row, _Mention()) for row in finding.rows]
            clauses[0] = f"compared with {baseline} in {self.score}, {clauses[0]}"
        if finding.others:
            rows = "row is" if finding.others == 1 else "rows are"
            clauses.append(f"{_count(finding.others)} more {rows} in the table")
        return clauses

    def compared_row(self, row: AlongAxis | ByCount, mention: _Mention) -> str:
        return (
            self.along_axis(row, mention)
            if isinstance(row, AlongAxis)
            else self.by_count(row, mention)
        )

    def along_axis(self, row: AlongAxis, mention: _Mention) -> str:
        """Return how a row compares, stretch by stretch: `at 8 bn is ... below, at 32 ...`."""
        first, *others = row.stretches
        score = f" in {mention.score}" if mention.score and not self.unit else ""
        predicate, *predicates = self.predicates(row.stretches, mention.baseline, score)
        place = self.place([each.point for each in first.differences])
        clauses = [f"{place}{row.row.in_sentence} {_verb(first)} {predicate}"]
        for stretch, predicate in zip(others, predicates, strict=True):
            shares_verb = _verb(first) == _verb(stretch) == "is"
            subject = "" if shares_verb else f"it {_verb(stretch)} "
            place = self.next_place([each.point for each in stretch.differences])
            clauses.append(f"{place}{subject}{predicate}")
        return ", ".join(clauses)

    def by_count(self, row: ByCount, mention: _Mention) -> str:
        """Return at how many points a row is below, above and not clearly different."""
        points = sum(len(stretch.differences) for stretch in row.stretches)
        total = " point" if points == 1 else f" of {_count(points)} points"
        counts = [_count(len(stretch.differences)) for stretch in row.stretches]
        counts[0] += total
        predicates = self.predicates(row.stretches, mention.baseline, "")
        clauses = [
            f"{_verb(stretch)} {predicate} at {count}"
            for stretch, predicate, count in zip(row.stretches, predicates, counts, strict=True)
        ]
        ends = [", ".join(clauses[:-1]), clauses[-1]] if clauses[1:] else clauses
        start = f"in {mention.score}, " if mention.score else ""
        return f"{start}{row.row.in_sentence} {' and '.join(ends)}"

    def predicates(self, stretches: Sequence[Stretch], baseline: str, score: str) -> list[str]:
        """Describe each stretch; the first comparison names the baseline and the score, if any."""
        compared = [n for n, each in enumerate(stretches) if each.standing.is_compared]
        return [
            self.predicate(each, baseline, score) if [n] == compared[:1] else self.predicate(each)
            for n, each in enumerate(stretches)
        ]

    def predicate(self, stretch: Stretch, baseline: str = "", score: str = "") -> str:
        """Describe points at which a row compares in the same way: `2.0 BLEU below ln`."""
        standing, differences = stretch
        text = _STANDINGS[standing]
        if standing in (Standing.ABOVE, Standing.BELOW):
            return f"{self.sizes(differences)} {text} {baseline}".rstrip() + score
        if standing is not Standing.OPEN:
            return text
        than = f" from {baseline}" if baseline else ""
        interval = self.interval(differences[0]) if len(differences) == 1 else ""
        return f"{text}{than}{score}{interval}"

    def place(self, points: Sequence[str]) -> str:
        """Return `at batch size 8 ` or `with placement pre, `, or "" unless there is one axis."""
        if len(self.result.axes) != 1:
            return ""
        (axis,), span = self.result.axes, self.span(points)
        if axis.numeric:
            return f"at {setting_with_values(axis.key, span)} "
        return f"with {axis.name} {span}, "

    def next_place(self, points: Sequence[str]) -> str:
        """Return the place without the axis, which an earlier place has: `at 32 and 128 `."""
        if len(self.result.axes) != 1:
            return ""
        return f"{'at' if self.result.axes[0].numeric else 'with'} {self.span(points)} "

    def span(self, points: Sequence[str]) -> str:
        """Return the values of the only axis: `8`, `32 and 128`, or a range such as `32 to 512`."""
        (axis,) = self.result.axes
        values = [*dict.fromkeys(values_at(point, self.result.keys)[axis.key] for point in points)]
        ends, between = values[:1] + values[1:][-1:], " and " if len(values) == 2 else " to "
        return between.join(map(_thousands, ends))

    def size(self, gap: float) -> str:
        """Return the size of a difference: one digit for BLEU and chrF, or more if that is zero."""
        digits = score_text(abs(gap), self.result.column)
        first = f"{abs(gap):.1f}" if self.unit else digits
        for text in (first, digits, f"{abs(gap):.1g}"):
            if float(text.replace(",", "")) != 0:
                return text
        return score_text(0.0, self.result.column)

    def sizes(self, differences: Iterable[PointDifference]) -> str:
        """Return the sizes of differences, with their unit: `2.0 BLEU`, `1.2 to 2.0 BLEU`."""
        sizes = sorted(abs(each.gap) for each in differences if each.gap is not None)
        ends = dict.fromkeys(self.size(size) for size in (sizes[0], sizes[-1]))
        return f"{' to '.join(ends)} {self.unit if self.result.axes else ''}".strip()

    def interval(self, difference: PointDifference) -> str:
        """Return a difference with its interval, in brackets: ` (+0.7 [-0.1, +1.5])`."""
        if difference.gap is None:
            return ""
        ends = (difference.gap, *(difference.interval or ()))
        gap, *bounds = (f"{'-' if x < 0 else '+'}{self.size(x)}" for x in ends)
        return f" ({gap} [{', '.join(bounds)}])" if bounds else f" ({gap})"


def _verb(stretch: Stretch) -> str:
    return "has" if stretch.standing is Standing.DIVERGED else "is"


def _thousands(value: str) -> str:
    """Return a whole number with commas: 4,096."""
    return f"{int(value):,}" if value.isdecimal() else value


def _count(number: int) -> str:
    return _COUNTS[number] if number < len(_COUNTS) else f"{number:,}"
