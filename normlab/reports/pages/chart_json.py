"""The JSON data from which `templates/charts.js` draws the charts of a page.

Control characters in texts, which may come from untrusted records, are escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NotRequired, TypedDict

from normlab.records.labels import one_line
from normlab.reports.figures.line_styles import LineStyle
from normlab.reports.figures.panel import Panel, Series
from normlab.reports.runs import significant

_POINTS_SHOWN = 12  # lines with at most this many points get a marker at each


class LinePlace(TypedDict):
    """Where a line is drawn: its row, and its facet.

    `at` is the line's grid point, or a sequence with the grid point of each x value.
    """

    row: str
    facet: str
    at: str | Sequence[str]


class ChartLine(LinePlace):
    """A row's line in a facet, by column: x, and the mean, lowest and highest seed at each x.

    `n` is the number of seeds, as one number or for each x. If it is 1 everywhere, `low` and `high`
    are left out.
    """

    x: list[float]
    mean: list[float]
    n: int | Sequence[int]
    low: NotRequired[list[float]]
    high: NotRequired[list[float]]


class ChartDivergence(LinePlace):
    """A seed that diverged: at the step `x`, or at the axis value `x` of its run.

    `mean` is the last finite value before the step, or the mean of the other seeds.
    """

    seed: int
    x: int | float
    mean: float


class Chart(TypedDict):
    """A chart: its axes, lines and divergences.

    `ticks` are positions on the horizontal axis, and `names` their labels. Points that are not
    `joined` have bars instead of a line with a band. If `marked` is set, each point has a marker.
    """

    id: str
    title: str
    across: str
    unit: str
    facets: Sequence[str]
    log: dict[str, bool]
    ticks: Sequence[float] | None
    names: Sequence[str] | None
    joined: bool
    marked: bool
    series: list[ChartLine]
    ended: list[ChartDivergence]


class Charts(TypedDict):
    """All charts of a page, the styles of their rows, and the grid points in words."""

    panels: list[Chart]
    looks: list[dict[str, Any]]
    points: NotRequired[dict[str, str]]


def charts_of(
    panels: Iterable[Panel], styles: Mapping[str, LineStyle], points: Mapping[str, str]
) -> Charts | None:
    """Return the charts of some panels, or None if there are none.

    `points` maps grid points to their names.
    """
    drawn = [chart(panel) for panel in panels]
    if not drawn:
        return None
    looks = [{**asdict(style), "name": one_line(style.name)} for style in styles.values()]
    charts = Charts(panels=drawn, looks=looks)
    if labels := {at: one_line(name) for at, name in points.items() if name}:
        charts["points"] = labels
    return charts


def chart(panel: Panel) -> Chart:
    """Return the chart of a panel."""
    return Chart(
        id=panel.id,
        title=one_line(panel.title),
        across=one_line(panel.across),
        unit=one_line(panel.unit),
        facets=[*map(one_line, panel.facets)],
        log={"x": panel.logarithmic_across, "y": panel.logarithmic},
        ticks=panel.ticks or None,
        names=[*map(one_line, panel.tick_names)] or None,
        joined=panel.joined,
        marked=all(len(line.x) <= _POINTS_SHOWN for line in panel.series),
        series=[_line(line) for line in panel.series],
        ended=[
            ChartDivergence(**_place(line), seed=seed, x=x, mean=value)
            for line in panel.series
            for seed, x, value in line.lost
            if value is not None
        ],
    )


def _place(line: Series) -> LinePlace:
    at = one_line(line.at) if isinstance(line.at, str) else [*map(one_line, line.at)]
    return LinePlace(row=one_line(line.row), facet=one_line(line.facet), at=at)


def _line(line: Series) -> ChartLine:
    """Return a line without redundant columns, which would make the page larger."""
    counts = set(line.n)
    columns = ChartLine(
        **_place(line),
        x=[int(x) if x == int(x) else x for x in line.x],
        mean=[significant(y) for y in line.mean],
        n=line.n[0] if len(counts) == 1 else line.n,
    )
    if counts != {1}:
        columns["low"] = [significant(y) for y in line.low]
        columns["high"] = [significant(y) for y in line.high]
    return columns
