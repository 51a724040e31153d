"""The answer of a table in a sentence: how each row's main score compares with the baseline's.

`main_result.py` decides what is stated; this file puts it into words. For a single seed, the
sentence gives the bare difference and says that it is one seed.
"""

from collections.abc import Sequence

from normlab.metrics.score_text import heading, score_text
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.tables.answer_words import DifferenceWords, PointWords, count_text
from normlab.reports.tables.main_result import (
    BaselineNotLearned,
    BestAndWorst,
    ComparedRow,
    Comparisons,
    MainResult,
    NothingLearned,
    OneScore,
    Stretch,
    main_result,
)
from normlab.reports.tables.score_table import ScoreTable
from normlab.reports.tables.standing import Standing

_STANDINGS = {
    Standing.BELOW: "below",
    Standing.ABOVE: "above",
    Standing.OPEN: "not clearly different",
    Standing.UNTRAINED: "not compared (near the untrained baseline)",
    Standing.UNTRAINED_BASELINE: (
        "not compared (the row to compare with is near the untrained baseline)"
    ),
    Standing.DIVERGED: "seeds that diverged",
    Standing.NOT_FINITE: "not compared (not every seed has a finite score)",
    Standing.UNKNOWN: "not compared",
}


def answer(table: ScoreTable, baseline: RowName) -> str:
    """Return a sentence on a table's first score, or "" if no rows or points can be compared."""
    if (result := main_result(table)) is None:
        return ""
    text = "; ".join([*_clauses(result, baseline.in_sentence), _seeds(result.seeds)])
    return f"{text[0].upper()}{text[1:]}."


def _seeds(counts: Sequence[int]) -> str:
    """Return the number of seeds: `three to five seeds`."""
    seeds = " to ".join(map(count_text, dict.fromkeys((counts[0], counts[-1]))))
    if counts == [1]:
        return f"{seeds} seed, so another seed may say otherwise"
    return f"{seeds} seeds"


def _clauses(result: MainResult, baseline: str) -> list[str]:
    """Return the parts of the answer, except the number of seeds."""
    score = heading(result.column)
    match result.finding:
        case NothingLearned():
            why = f"nothing is clearly better than the untrained baseline in {score}"
            return [f"{why}, so differences say nothing about norms"]
        case BaselineNotLearned():
            near = f"in {score}, {baseline} is near the untrained baseline"
            return [f"{near}, so no row is compared with it"]
        case OneScore(row, value):
            return [f"the {score} of {row.in_sentence} is {value}"]
        case BestAndWorst(row, best, worst):
            points = PointWords(result.axes, result.keys)
            ends = (
                f"{points.at([point])}({score_text(mean, result.column)})"
                for point, mean in (best, worst)
            )
            return [f"the {score} of {row.in_sentence} is best {' and worst '.join(ends)}"]
        case Comparisons(rows, others):
            return _comparisons(result, rows, others, baseline)


def _comparisons(
    result: MainResult, rows: Sequence[ComparedRow], others: int, baseline: str
) -> list[str]:
    """Return a clause for each compared row, and one for the number of others.

    With axes, each clause names the baseline, and the first one the score. Without axes, both are
    named before the first clause, unless a single row can name the baseline itself.
    """
    score = heading(result.column) + (" (lower is better)" if result.lower_is_better else "")
    if result.axes:
        clauses = [_clause(result, row, baseline, "" if n else score) for n, row in enumerate(rows)]
    elif len(rows) == 1 and not others:
        clauses = [f"in {score}, {_clause(result, rows[0], baseline)}"]
    else:
        clauses = [_clause(result, row) for row in rows]
        clauses[0] = f"compared with {baseline} in {score}, {clauses[0]}"
    if others:
        verb = "row is" if others == 1 else "rows are"
        clauses.append(f"{count_text(others)} more {verb} in the table")
    return clauses


def _clause(result: MainResult, row: ComparedRow, baseline: str = "", score: str = "") -> str:
    """Return a clause on how a row compares. It names the baseline and the score, if given."""
    return (_by_count if row.by_count else _along_axis)(result, row, baseline, score)


def _along_axis(result: MainResult, row: ComparedRow, baseline: str, score: str) -> str:
    """Return how a row compares, stretch by stretch: `at 8 bn is ... below, at 32 ...`."""
    words = DifferenceWords(result.column, with_unit=bool(result.axes))
    points = PointWords(result.axes, result.keys)
    in_score = f" in {score}" if score and not words.unit else ""
    predicates = _predicates(row.stretches, words, baseline, in_score)
    clauses: list[str] = []
    for number, (stretch, predicate) in enumerate(zip(row.stretches, predicates, strict=True)):
        verb, at = _verb(stretch), [each.point for each in stretch.differences]
        if number == 0:
            clauses.append(f"{points.at(at)}{row.name.in_sentence} {verb} {predicate}")
        elif verb == _verb(row.stretches[0]) == "is":  # the verb need not be repeated
            clauses.append(f"{points.next_at(at)}{predicate}")
        else:
            clauses.append(f"{points.next_at(at)}it {verb} {predicate}")
    return ", ".join(clauses)


def _by_count(result: MainResult, row: ComparedRow, baseline: str, score: str) -> str:
    """Return at how many points a row is below, above and not clearly different."""
    words = DifferenceWords(result.column, with_unit=bool(result.axes))
    points = sum(len(stretch.differences) for stretch in row.stretches)
    counts = [count_text(len(stretch.differences)) for stretch in row.stretches]
    counts[0] += " point" if points == 1 else f" of {count_text(points)} points"
    *clauses, last = [
        f"{_verb(stretch)} {predicate} at {count}"
        for stretch, predicate, count in zip(
            row.stretches, _predicates(row.stretches, words, baseline), counts, strict=True
        )
    ]
    start = f"in {score}, " if score else ""
    ends = [", ".join(clauses), last] if clauses else [last]
    return f"{start}{row.name.in_sentence} {' and '.join(ends)}"


def _predicates(
    stretches: Sequence[Stretch], words: DifferenceWords, baseline: str, in_score: str = ""
) -> list[str]:
    """Describe each stretch. The first one that is compared names the baseline and the score."""
    compared = (number for number, each in enumerate(stretches) if each.standing.is_compared)
    first = next(compared, None)
    return [
        _predicate(each, words, *((baseline, in_score) if number == first else ()))
        for number, each in enumerate(stretches)
    ]


def _predicate(
    stretch: Stretch, words: DifferenceWords, baseline: str = "", in_score: str = ""
) -> str:
    """Describe points at which a row compares in the same way: `2.0 BLEU below ln`."""
    text = _STANDINGS[stretch.standing]
    match stretch.standing:
        case Standing.ABOVE | Standing.BELOW:
            return f"{words.sizes(stretch.differences)} {text} {baseline}".rstrip() + in_score
        case Standing.OPEN:
            than = f" from {baseline}" if baseline else ""
            only = len(stretch.differences) == 1
            return text + than + in_score + (words.interval(stretch.differences[0]) if only else "")
        case _:
            return text


def _verb(stretch: Stretch) -> str:
    return "has" if stretch.standing is Standing.DIVERGED else "is"
