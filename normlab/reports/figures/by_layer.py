"""The figures by layer: what a probe found at each place of the model, mean over the run.

The places stand across in the order of depth, the encoder and the decoder in panels with the same
scale. A sheet may have several rows, such as TID of mean and of variance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from normlab.records.depth import by_place, in_depth_order, stack
from normlab.reports.figures.panels import (
    POINTS,
    End,
    label,
    name_lines,
    panels,
    text_width,
)
from normlab.reports.figures.runs import Experiment, Run
from normlab.reports.figures.seeds import draw_curves
from normlab.reports.figures.style import TICKS, Theme, drawing, line, scale_up_axis

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

_NAMES_FIT = 24  # places in a panel that can all be named
_BELOW = 0.2  # inches below the names of places


@dataclass(frozen=True)
class Row:
    """One figure by layer: its name in records, its title, and the unit at its axis."""

    figure: str
    title: str
    unit: str


def has_places(run: Run, rows: Sequence[Row]) -> bool:
    """Tell whether a run's record has one of the figures, finite at one place at least."""
    return any(_profile(run, row) for row in rows)


def by_layer(
    experiments: Sequence[Experiment], theme: Theme, rows: Sequence[Row]
) -> "matplotlib.figure.Figure":
    """Draw figures of the records by layer, one line an experiment, its seeds faint."""
    runs = [run for experiment in experiments for run in experiment.runs]
    places = in_depth_order({place for run in runs for row in rows for place in _profile(run, row)})
    stacks = {name: [p for p in places if stack(p) == name] for name in map(stack, places)}
    titles = [f"{row.title}, {name}" for row in rows for name in stacks]
    labels = [label(experiment.name) for experiment in experiments]
    foot = "bold: mean of the seeds; faint: seeds" if len(runs) > len(experiments) else ""
    with drawing():
        figure, all_axes = panels(
            theme, titles, labels, columns=len(stacks), bottom=_below(places), foot=foot
        )
        for index, row in enumerate(rows):
            pair = all_axes[index * len(stacks) : (index + 1) * len(stacks)]
            for axes in pair[1:]:
                axes.sharey(pair[0])
            scale_up_axis(pair[0], [v for run in runs for v in _profile(run, row).values()])
            ends = [
                _draw(axes, experiments, row, of_stack, theme)
                for axes, of_stack in zip(pair, stacks.values(), strict=True)
            ]
            # The shared scale stands only when all panels of the row are drawn.
            for axes, of_stack in zip(pair, ends, strict=True):
                name_lines(axes, theme, of_stack)
    return figure


def _profile(run: Run, row: Row) -> dict[str, float]:
    found = by_place(run.record.stability, row.figure) if run.record else {}
    return {place: value for place, value in found.items() if math.isfinite(value)}


def _draw(
    axes: "matplotlib.axes.Axes",
    experiments: Sequence[Experiment],
    row: Row,
    places: Sequence[str],
    theme: Theme,
) -> list[End]:
    ends: list[End] = []
    for experiment in experiments:
        look = line(theme, experiment.number)
        profiles = [_profile(run, row) for run in experiment.runs]
        curves = [
            {float(x): profile[place] for x, place in enumerate(places) if place in profile}
            for profile in profiles
        ]
        if end := draw_curves(axes, curves, look, number=experiment.number):
            ends.append(End(label(experiment.name), look, end))
    axes.set_ylabel(row.unit)
    _depth_axis(axes, theme, places)
    return ends


def _short(place: str) -> str:
    inside = place.partition(".")[2].replace(".", " ")
    return f"layer {inside}" if inside.isdecimal() else inside or place


def _below(places: Sequence[str]) -> float:
    longest = max((text_width(_short(place), TICKS) for place in places), default=0.0)
    return longest / POINTS + _BELOW


def _depth_axis(axes: "matplotlib.axes.Axes", theme: Theme, places: Sequence[str]) -> None:
    """Name the places across, of many only the first of each layer, and part the layers."""
    names = [_short(place) for place in places]
    outer = [place.split(".")[1] if "." in place else place for place in places]
    begins = [x for x in range(len(places)) if x == 0 or outer[x] != outer[x - 1]]
    many = len(places) > _NAMES_FIT
    ticks = {x: outer[x] for x in begins} if many else dict(enumerate(names))
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xticks(list(ticks), list(ticks.values()), rotation=90)
    if len(begins) < len(places):  # layers of several sites
        for x in begins[1:]:
            axes.axvline(x - 0.5, color=theme.grid, linewidth=0.5, zorder=0, label="border")
