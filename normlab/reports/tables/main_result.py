"""Decides what the answer of a table states: how its rows compare in the main score.

`standing.py` decides how a row compares with the baseline at one point. This file joins the points
of a row and chooses the rows to state; `answer.py` puts the result into words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import NamedTuple

from normlab.records.grouping import grouped
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.tables.axes import Axis, table_axes, values_at
from normlab.reports.tables.score_table import ScoreRow, ScoreTable
from normlab.reports.tables.standing import (
    PointDifference,
    Standing,
    is_untrained,
    main_score,
    point_difference,
)

_MOST_ROWS = 4
"""Rows that an answer states one by one; the others are only counted."""
_MOST_STRETCHES = 5
"""Stretches that an answer lists along an axis; if a row has more, its points are counted."""


class Stretch(NamedTuple):
    """Points at which a row compares with the baseline in the same way."""

    standing: Standing
    differences: Sequence[PointDifference]


class ComparedRow(NamedTuple):
    """How a row compares with the baseline, stretch by stretch along the only axis, if any.

    With `by_count`, there is one stretch per standing, and the answer states only how many points
    each stretch has, because there are several axes or too many stretches.
    """

    name: RowName
    stretches: Sequence[Stretch]
    by_count: bool = False


class NothingLearned(NamedTuple):
    """No row is clearly better than the untrained baseline."""


class BaselineNotLearned(NamedTuple):
    """The row to compare with is near the untrained baseline at every point."""


class OneScore(NamedTuple):
    """The table has a single score: the name of its row, and its value as text."""

    name: RowName
    value: str


class BestAndWorst(NamedTuple):
    """The table has a single row: its name, and its best and worst points with the mean scores."""

    name: RowName
    best: tuple[str, float]
    worst: tuple[str, float]


class Comparisons(NamedTuple):
    """The rows that are compared with the baseline, and how many further rows the table has."""

    rows: Sequence[ComparedRow]
    others: int


Finding = NothingLearned | BaselineNotLearned | OneScore | BestAndWorst | Comparisons


@dataclass(frozen=True)
class MainResult:
    """What was found on the main score, `column`.

    `axes` are the axes with several values, `keys` the config keys of all axes, and `seeds` the
    distinct numbers of seeds that rows have, in ascending order.
    """

    column: str
    lower_is_better: bool
    axes: Sequence[Axis]
    keys: Sequence[str]
    seeds: Sequence[int]
    finding: Finding


def main_result(table: ScoreTable) -> MainResult | None:
    """Return the result on a table's first score, or None if there is nothing to compare."""
    if (column := main_score(table)) is None:
        return None
    scores = [score for row in table.rows for score in row.entries[column].scores.values()]
    lower_is_better = not any(score.higher_is_better for score in scores)
    axes = table_axes(table)
    if (finding := _finding(table, column, axes, lower_is_better=lower_is_better)) is None:
        return None
    seeds = sorted({len(row.entries[column].scores) for row in table.rows} - {0})
    return MainResult(column, lower_is_better, axes, table.axes, seeds, finding)


def _finding(
    table: ScoreTable, column: str, axes: Sequence[Axis], *, lower_is_better: bool
) -> Finding | None:
    scored = [row for row in table.rows if row.entries[column].scores]
    if all(is_untrained(row, column) for row in scored):
        return NothingLearned()
    others = grouped((row.row_name, row) for row in table.rows if not row.is_baseline)
    if not others:
        return _only_row(scored, column, axes, lower_is_better=lower_is_better)
    bases = {row.point: row for row in table.rows if row.is_baseline}
    if bases and all(is_untrained(row, column) for row in bases.values()):
        return BaselineNotLearned()
    differences = {
        name: [point_difference(row, bases.get(row.point), column) for row in rows]
        for name, rows in others.items()
    }
    if len(axes) == 1:
        differences = {name: _along(axes[0], table, each) for name, each in differences.items()}
    return _comparisons(differences, axes)


def _along(
    axis: Axis, table: ScoreTable, differences: Sequence[PointDifference]
) -> list[PointDifference]:
    """Sort the differences at points by their position on the only axis."""
    return sorted(
        differences, key=lambda each: axis.position(values_at(each.point, table.axes)[axis.key])
    )


def _only_row(
    rows: Sequence[ScoreRow], column: str, axes: Sequence[Axis], *, lower_is_better: bool
) -> OneScore | BestAndWorst | None:
    """Return the result of the only row: its value, or the points at which it is best and worst."""
    name = rows[0].row_name
    if len(rows) == 1:
        return OneScore(name, rows[0].entries[column].value)
    means = {row.point: summary.mean for row in rows if (summary := row.entries[column].summary)}
    if len(axes) != 1 or len(means) < 2:
        return None
    ordered = sorted(means.items(), key=lambda each: each[1], reverse=not lower_is_better)
    return BestAndWorst(name, ordered[0], ordered[-1])


def _comparisons(
    differences: Mapping[RowName, Sequence[PointDifference]], axes: Sequence[Axis]
) -> Comparisons | None:
    """Return how the first rows compare. Rows that are compared at no point are left out."""
    rows = [
        _compared_row(name, at_points, axes)
        for name, at_points in islice(differences.items(), _MOST_ROWS)
        if any(each.standing is not Standing.UNKNOWN for each in at_points)
    ]
    return Comparisons(rows, len(differences) - len(rows)) if rows else None


def _compared_row(
    name: RowName, differences: Sequence[PointDifference], axes: Sequence[Axis]
) -> ComparedRow:
    """Return how a row compares, by stretches along a single axis if there are few."""
    stretches = [
        Stretch(standing, [*group])
        for standing, group in groupby(differences, key=lambda each: each.standing)
    ]
    if len(axes) == 1 and not axes[0].numeric:  # words have no order, so no stretches
        stretches = [Stretch(each.standing, [each]) for each in differences]
    if len(axes) > 1 or len(stretches) > _MOST_STRETCHES:
        by_standing = grouped((each.standing, each) for each in differences)
        stretches = [Stretch(*each) for each in by_standing.items()]
        return ComparedRow(name, stretches, by_count=True)
    return ComparedRow(name, stretches)
