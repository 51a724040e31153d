"""Charts of scores over the axes of a table: one chart for each score and axis.

A line is a row, such as a norm; other axes become facets, a small grid of plots. Values that are
words, such as placements, are separate positions without a line between them.
"""

import math

from normlab.records.grouping import grouped
from normlab.reports.figures.panel import Panel, Series
from normlab.reports.setting_names import point_name
from normlab.reports.tables.axes import Axis, table_axes, values_at
from normlab.reports.tables.score_table import ScoreRow, ScoreTable

_LOGARITHMIC = ("batch_size", "max_tokens", "optim.lr", "budget.tokens", "budget.steps")
"""Axes on which values are usually multiplied, whatever their range."""
_UNITS = {"batch_size": " (sequences)", "model.depth": " (layers per stack)"}
_APART = 0.08  # offset between rows at the same value, as a share of the distance between values
_NOT_DRAWN = ("task",)
"""Axes over which scores are not drawn, because BLEU and accuracy, for example, share no scale."""


def by_axis(table: ScoreTable) -> dict[Axis, list[Panel]]:
    """Return the charts of the table's scores over each axis. Charts without lines are left out."""
    charts: dict[Axis, list[Panel]] = {}
    for axis in table_axes(table):
        if axis.key not in _NOT_DRAWN:
            panels = (_over_axis(axis, table, column) for column in table.columns)
            if drawn := [panel for panel in panels if panel.series]:
                charts[axis] = drawn
    return charts


_LinePoint = tuple[float, str, float, float, float, int]
"""A point of a line: its x, its grid point, then mean, lowest, highest and number of seeds."""


def _over_axis(axis: Axis, table: ScoreTable, column: str) -> Panel:
    """Return the chart of a score over an axis: a line per row, a facet per other grid point."""
    ticks = tuple(sorted({axis.position(value) for value in axis.values}))
    return Panel(
        *(column, table.heading(column), table.heading(column), _lines(axis, table, column)),
        across=table.names.get(axis.key) or axis.name + _UNITS.get(axis.key, ""),
        ticks=ticks,
        tick_names=() if axis.numeric else axis.values,
        log_from=None,
        log_across=axis.key in _LOGARITHMIC and min(ticks) > 0,
        joined=axis.numeric,
    )


def _lines(axis: Axis, table: ScoreTable, column: str) -> tuple[Series, ...]:
    """Return a line for each row and facet that has a point.

    If seeds diverged, the point has a cross for each of them, and is the mean of the others.
    """
    names = [*dict.fromkeys(row.name for row in table.rows)]
    points: list[tuple[tuple[str, str], _LinePoint]] = []
    lost: list[tuple[tuple[str, str], tuple[int, float, float | None]]] = []
    for row in table.rows:
        if (place := _place(row, axis, table)) is None:
            continue
        entry, (x, facet) = row.entries[column], place
        if not axis.numeric:  # rows at the same value are drawn next to each other
            x += _APART * (names.index(row.name) - (len(names) - 1) / 2)
        values, summary, line = entry.values, entry.summary, (row.name, facet)
        mean = summary.mean if summary and math.isfinite(summary.mean) else None
        diverged = [each for each in row.records if each.outcome.status == "diverged"]
        lost += [(line, (record.seed, x, mean)) for record in diverged]
        if summary is not None and all(map(math.isfinite, values)):
            point = (x, row.point, summary.mean, min(values), max(values), summary.n)
            points.append((line, point))
    crosses = grouped(lost)
    lines: list[Series] = []
    for (row, facet), of_line in grouped(points).items():
        x, at, mean, low, high, n = zip(*sorted(of_line), strict=True)
        crossed = tuple(crosses.get((row, facet), ()))
        lines.append(Series(row, facet, at, x, mean, low, high, n, crossed))
    return tuple(lines)


def _place(row: ScoreRow, axis: Axis, table: ScoreTable) -> tuple[float, str] | None:
    """Return a row's place on an axis, and its facet: its values on the other axes."""
    at = values_at(row.point, table.axes)
    if axis.key not in at:
        return None
    others = " ".join(f"{key}={value}" for key, value in at.items() if key != axis.key)
    return axis.position(at[axis.key]), point_name(others, table.names)
