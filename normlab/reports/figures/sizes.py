"""The figure of cost by size: tokens a second and memory, a panel a size."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from normlab.reports.figures.style import LIGHT, Theme, drawing, dress, line, sheet

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

_NAMES = {
    "model.dim": "width",
    "model.depth": "layers a stack",
    "max_tokens": "tokens a batch",
    "pairs": "sentence pairs",
    "ranks": "processes",
    "runs": "runs side by side",
}


def sizes(points: Sequence[Mapping[str, Any]], theme: Theme = LIGHT) -> "matplotlib.figure.Figure":
    """Draw the points of `normlab bench sizes`, tokens a second above and memory below.

    A point is `{"axis", "value", "tokens_per_busy_second": {"median", "min", "max"},
    "peak_memory_bytes"}`; the bar reaches from the slowest turn to the fastest.
    """
    axes = list(dict.fromkeys(point["axis"] for point in points))
    look = line(theme, 0)
    with drawing():
        figure = sheet(1.75 * len(axes) + 0.5, 3.4, theme)
        grid = figure.subplots(2, len(axes), sharey="row", squeeze=False)
        for column, axis in enumerate(axes):
            found = [point for point in points if point["axis"] == axis]
            values = [point["value"] for point in found]
            rates = [point["tokens_per_busy_second"] for point in found]
            middle = [rate["median"] for rate in rates]
            reach = [
                [rate["median"] - rate["min"] for rate in rates],
                [rate["max"] - rate["median"] for rate in rates],
            ]
            memory = [point["peak_memory_bytes"] / 2**30 for point in found]
            style = {"color": look.hue, "marker": look.mark, "markersize": 3.5, "linewidth": 1.3}
            grid[0][column].errorbar(values, middle, reach, elinewidth=0.8, **style)
            grid[1][column].plot(values, memory, **style)
            grid[1][column].set_xlabel(_NAMES.get(axis, axis))
            for row in (0, 1):
                _across(grid[row][column], values, theme, labelled=row == 1)
        grid[0][0].set_ylabel("target tokens a second")
        grid[1][0].set_ylabel("memory, GiB")
        grid[0][0].set_ylim(bottom=0)
        grid[1][0].set_ylim(bottom=0)
        figure.tight_layout()
    return figure


def _across(
    axes: "matplotlib.axes.Axes", values: Sequence[int], theme: Theme, *, labelled: bool
) -> None:
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 1.3, max(values) * 1.3)
    axes.set_xticks(values, labels=[_short(value) for value in values] if labelled else [])
    axes.minorticks_off()
    dress(axes, theme)


def _short(value: int) -> str:
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if value >= size and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)
