"""The answer of a table in a sentence: how each row's main score compares with the baseline's.

`standing.py` decides how rows compare; this file puts the result into words. For a single seed, the
sentence gives the bare difference and says that it is one seed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import NamedTuple

from normlab.metrics.score_text import heading, score_text, unit_of_differences
from normlab.records.grouping import grouped
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.setting_names import setting_with_values
from normlab.reports.tables.axes import Axis, table_axes, values_at
from normlab.reports.tables.score_table import ScoreRow, ScoreTable
from normlab.reports.tables.standing import (
    PointDifference,
    Standing,
    is_untrained,
    main_score,
    point_difference,
)

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
_MOST_ROWS = 4
_MOST_PARTS = 5


def answer(table: ScoreTable, baseline: RowName) -> str:
    """Return a sentence on a table's first score, or "" if no rows or points can be compared."""
    column = main_score(table)
    if column is None:
        return ""
    rows = [row for row in table.rows if row.entries[column].scores]
    clauses = _clauses(table, rows, column, baseline)
    return _sentence(clauses, rows, column) if clauses else ""


def _clauses(
    table: ScoreTable, rows: Sequence[ScoreRow], column: str, baseline: RowName
) -> list[str]:
    """Return the parts of the answer; `rows` are those that have the score."""
    words = _Phrasing.of(table, column)
    if all(is_untrained(row, column) for row in rows):
        why = f"nothing is clearly better than the untrained baseline in {heading(column)}"
        return [f"{why}, so differences say nothing about norms"]
    others = grouped((row.row_name, row) for row in table.rows if not row.is_baseline)
    if not others:
        return words.of_one_row(rows)
    bases = {row.point: row for row in table.rows if row.is_baseline}
    if bases and all(is_untrained(row, column) for row in bases.values()):
        near = f"in {heading(column)}, {baseline.in_sentence} is near the untrained baseline"
        return [f"{near}, so no row is compared with it"]
    differences = {
        name: [point_difference(row, bases.get(row.point), column) for row in of_name]
        for name, of_name in others.items()
    }
    return words.of_rows(differences, baseline.in_sentence)


class _Stretch(NamedTuple):
    """Points at which a row stands in the same way to the baseline."""

    standing: Standing
    differences: Sequence[PointDifference]

    @property
    def verb(self) -> str:
        return "has" if self.standing is Standing.DIVERGED else "is"


@dataclass(frozen=True)
class _Phrasing:
    """Puts the findings on one score of a table into words.

    `axes` are the axes with several values, `keys` all keys of the points; `falls`: lower is
    better.
    """

    column: str
    axes: Sequence[Axis]
    keys: Sequence[str]
    falls: bool

    @classmethod
    def of(cls, table: ScoreTable, column: str) -> "_Phrasing":
        scores = [score for row in table.rows for score in row.entries[column].scores.values()]
        falls = not any(score.higher_is_better for score in scores)
        return cls(column, table_axes(table), table.axes, falls)

    @property
    def unit(self) -> str:
        return unit_of_differences(self.column)

    @property
    def score(self) -> str:
        """Return the score's name, with `(lower is better)` if it is."""
        return heading(self.column) + (" (lower is better)" if self.falls else "")

    def of_rows(
        self, differences: Mapping[RowName, Sequence[PointDifference]], reference: str
    ) -> list[str]:
        """Return a clause for each of the first rows that are compared, and the number of others.

        With axes, the first clause names the score and each clause the baseline, `reference`.
        Without, both are named before the first clause; a single other row names the baseline.
        """
        compared = {
            name: of_name
            for name, of_name in islice(differences.items(), _MOST_ROWS)
            if any(each.standing is not Standing.UNKNOWN for each in of_name)
        }
        if not compared:
            return []
        names_baseline = self.axes or len(differences) == 1
        clauses = [
            self._of_row(name.in_sentence, of_name, reference if names_baseline else "", n == 0)
            for n, (name, of_name) in enumerate(compared.items())
        ]
        if not self.axes:
            whom = "" if names_baseline else f"compared with {reference} "
            clauses[0] = f"{whom}in {self.score}, {clauses[0]}"
        if more := len(differences) - len(compared):
            clauses.append(
                f"{_count(more)} more {'row is' if more == 1 else 'rows are'} in the table"
            )
        return clauses

    def _of_row(
        self, name: str, differences: Sequence[PointDifference], reference: str, names_score: bool
    ) -> str:
        """Describe how a row compares with another, value by value along the axis or as counts.

        `reference` is the other row, or "" if that has been named already.
        """
        stretches = [
            _Stretch(standing, [*group])
            for standing, group in groupby(differences, key=lambda each: each.standing)
        ]
        if len(self.axes) == 1 and not self.axes[0].numeric:
            stretches = [_Stretch(each.standing, [each]) for each in differences]
        if len(self.axes) > 1 or len(stretches) > _MOST_PARTS:
            return self._counted(name, differences, reference, names_score)
        predicates = self._predicates(stretches, reference, names_score and bool(reference))
        clauses: list[str] = []
        for n, (stretch, predicate) in enumerate(zip(stretches, predicates, strict=True)):
            shares_verb = n > 0 and stretches[0].verb == stretch.verb == "is"
            subject = "" if shares_verb else f"{'it' if n else name} {stretch.verb} "
            where = self._where([each.point for each in stretch.differences], first=n == 0)
            clauses.append(where + subject + predicate)
        return ", ".join(clauses)

    def _counted(
        self, name: str, differences: Sequence[PointDifference], reference: str, names_score: bool
    ) -> str:
        """Return at how many points a row is below, above and not clearly different."""
        by_standing = grouped((each.standing, each) for each in differences)
        parts = [_Stretch(standing, each) for standing, each in by_standing.items()]
        total = " point" if len(differences) == 1 else f" of {_count(len(differences))} points"
        clauses = [
            f"{part.verb} {predicate} at {_count(len(part.differences))}{'' if n else total}"
            for n, (part, predicate) in enumerate(
                zip(parts, self._predicates(parts, reference, names_score=False), strict=True)
            )
        ]
        ends = [", ".join(clauses[:-1]), clauses[-1]] if clauses[1:] else clauses
        start = f"in {self.score}, " if names_score else ""
        return f"{start}{name} {' and '.join(ends)}"

    def _predicates(
        self, stretches: Sequence[_Stretch], reference: str, names_score: bool
    ) -> list[str]:
        """Describe each stretch; the first that is compared names the baseline, and the score."""
        naming = next((n for n, each in enumerate(stretches) if each.standing.is_compared), None)
        return [
            self._predicate(each, reference, names_score)
            if n == naming
            else self._predicate(each, "", names_score=False)
            for n, each in enumerate(stretches)
        ]

    def _predicate(self, stretch: _Stretch, reference: str, names_score: bool) -> str:
        """Describe points at which a row compares in the same way: `2.0 BLEU below ln`."""
        standing, differences = stretch
        within = self._within if names_score else ""
        if standing in (Standing.ABOVE, Standing.BELOW):
            return (
                f"{self._sizes(differences)} {_STANDINGS[standing]} {reference}".rstrip() + within
            )
        if standing is not Standing.OPEN:
            return _STANDINGS[standing]
        than = f" from {reference}" if reference else ""
        interval = self._interval(differences[0]) if len(differences) == 1 else ""
        return f"{_STANDINGS[standing]}{than}{within}{interval}"

    @property
    def _within(self) -> str:
        """Return ` in test loss`, or "" if the name was given before or is the unit."""
        return f" in {self.score}" if self.axes and not self.unit else ""

    def _where(self, points: Sequence[str], *, first: bool) -> str:
        """Return `at batch size 8 `, then for later points `at 32 and 128 `, or "" without an axis.

        More than two points are a range: `at 32 to 512 `.
        """
        if len(self.axes) != 1:
            return ""
        (axis,) = self.axes
        values = [*dict.fromkeys(values_at(point, self.keys)[axis.key] for point in points)]
        ends, between = values[:1] + values[1:][-1:], " and " if len(values) == 2 else " to "
        span = between.join(map(_thousands, ends))
        if axis.numeric:
            return f"at {setting_with_values(axis.key, span) if first else span} "
        return f"with {axis.name} {span}, " if first else f"with {span} "

    def of_one_row(self, rows: Sequence[ScoreRow]) -> list[str]:
        """Return the score of the only row, or the points at which it is best and worst."""
        if len(rows) == 1:
            value = rows[0].entries[self.column].value
            return [f"the {heading(self.column)} of {rows[0].row_name.in_sentence} is {value}"]
        means = {
            row.point: summary.mean for row in rows if (summary := row.entries[self.column].summary)
        }
        if len(self.axes) != 1 or len(means) < 2:
            return []
        ordered = sorted(means, key=lambda point: means[point], reverse=not self.falls)
        best, worst = (
            f"{self._where([point], first=True)}({score_text(means[point], self.column)})"
            for point in (ordered[0], ordered[-1])
        )
        name = rows[0].row_name.in_sentence
        return [f"the {heading(self.column)} of {name} is best {best} and worst {worst}"]

    def _size(self, gap: float) -> str:
        """Return the size of a difference: one digit for BLEU and chrF, or more if that is zero."""
        digits = score_text(abs(gap), self.column)
        first = f"{abs(gap):.1f}" if self.unit else digits
        for text in (first, digits, f"{abs(gap):.1g}"):
            if float(text.replace(",", "")) != 0:
                return text
        return score_text(0.0, self.column)

    def _sizes(self, findings: Iterable[PointDifference]) -> str:
        """Return the sizes of differences, with their unit: `2.0 BLEU`, `1.2 to 2.0 BLEU`."""
        sizes = sorted(abs(each.gap) for each in findings if each.gap is not None)
        ends = dict.fromkeys(self._size(size) for size in (sizes[0], sizes[-1]))
        return f"{' to '.join(ends)} {self.unit if self.axes else ''}".strip()

    def _interval(self, difference: PointDifference) -> str:
        """Return a difference with its interval, in brackets: ` (+0.7 [-0.1, +1.5])`."""
        if difference.gap is None:
            return ""
        ends = (difference.gap, *(difference.interval or ()))
        gap, *bounds = (f"{'-' if x < 0 else '+'}{self._size(x)}" for x in ends)
        return f" ({gap} [{', '.join(bounds)}])" if bounds else f" ({gap})"


def _thousands(value: str) -> str:
    """Return a whole number with commas: 4,096."""
    return f"{int(value):,}" if value.isdecimal() else value


def _sentence(clauses: Sequence[str], rows: Sequence[ScoreRow], column: str) -> str:
    """Join the parts of an answer, with the number of seeds."""
    counts = sorted({len(row.entries[column].scores) for row in rows})
    seeds = " to ".join(map(_count, dict.fromkeys((counts[0], counts[-1]))))
    end = f"{seeds} seed{'' if counts == [1] else 's'}"
    if counts == [1]:
        end += ", so another seed may say otherwise"
    text = "; ".join([*clauses, end])
    return f"{text[0].upper()}{text[1:]}."


def _count(number: int) -> str:
    return _COUNTS[number] if number < len(_COUNTS) else f"{number:,}"
