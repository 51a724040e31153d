"""Decides how a chart of a page is drawn: a Vega-Lite specification without its data and colours.

A line is the mean over seeds and a band reaches from the lowest to the highest of them. Small
multiples share their axes. The script of the page adds what depends on the reader: the width, the
colours of the theme, the data that the filters leave.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normlab.reports.curves import significant
from normlab.reports.figures.seeds import Spread
from normlab.reports.figures.style import LIGHT, LOG_FROM, logarithmic, within_decades

HUES = len(LIGHT.hues)
_STROKES: tuple[list[int], ...] = ([1, 0], [7, 3], [2, 2], [8, 3, 2, 3])
_MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
_POINTS_SHOWN = 12  # a line of so few points has a mark at each
_NARROW = 6.0  # ratio below which a logarithmic axis is marked at each whole number
_LOG_ACROSS = 4.0  # batch sizes and depths are doubled rather than added to
STEP = "training step"


@dataclass(frozen=True)
class Series:
    """A line: its setting (`row`), where it stands (`facet`), and its points by x.

    `at` names the point of the grid of each x, one name for a line that lies in one.
    """

    row: str
    facet: str
    at: str | tuple[str, ...]
    points: dict[float, Spread]


@dataclass(frozen=True)
class Ended:
    """A seed that diverged: at which step, and the last value before it."""

    row: str
    at: str
    seed: int
    step: int
    value: float


@dataclass(frozen=True)
class Panel:
    """What a chart shows.

    `ticks` are the places of the axis across, where they are given; `log_from` is the ratio of the
    values from which the axis up is logarithmic, None for one that never is.
    """

    name: str
    title: str
    unit: str
    series: tuple[Series, ...]
    across: str = STEP
    ticks: tuple[float, ...] = ()
    ended: tuple[Ended, ...] = ()
    log_from: float | None = LOG_FROM

    @property
    def id(self) -> str:
        """Return a name for the page, also of a figure with odd letters."""
        return "chart-" + re.sub(r"[^a-z0-9]+", "-", f"{self.across}-{self.name}".lower())

    @property
    def facets(self) -> tuple[str, ...]:
        """Return the small multiples in their order."""
        return tuple(dict.fromkeys(series.facet for series in self.series))

    @property
    def values(self) -> list[float]:
        """Return all values up the axis."""
        spreads = [here for series in self.series for here in series.points.values()]
        return [value for here in spreads for value in (here.low, here.mean, here.high)]

    @property
    def summary(self) -> str:
        """Say in a sentence what each line comes to, for readers who do not see it."""
        ends = [(series, *list(series.points.items())[-1]) for series in self.series]
        said = ", ".join(
            f"{' '.join(part for part in (series.row, series.facet) if part)} "
            f"{here.mean:.4g} at {x:,.10g}"
            for series, x, here in ends
        )
        return f"{self.title} by {self.across}, a line a setting. At its end: {said}."


def dashes(number: int) -> list[int]:
    """Return the stroke of a line by its number."""
    return _STROKES[number % len(_STROKES)]


def mark(number: int) -> str:
    """Return the mark of a line by its number."""
    return _MARKS[number % len(_MARKS)]


def data(panel: Panel, rows: Sequence[str]) -> dict[str, Any]:
    """Return what the page's script draws a panel from: specification, lines, divergences."""
    return {
        "id": panel.id,
        "title": panel.title,
        "across": panel.across,
        "unit": panel.unit,
        "facets": list(panel.facets),
        "spec": specification(panel, rows),
        "series": [_columns(series) for series in panel.series],
        "ended": [
            {"row": end.row, "at": end.at, "seed": end.seed, "x": end.step, "mean": end.value}
            for end in panel.ended
        ],
    }


def _columns(series: Series) -> dict[str, Any]:
    """Return a line by columns, which take a third of the room of rows."""
    spreads = list(series.points.values())
    counts = sorted({here.n for here in spreads})
    result: dict[str, Any] = {
        "row": series.row,
        "facet": series.facet,
        "at": series.at if isinstance(series.at, str) else list(series.at),
        "x": [int(x) if x == int(x) else x for x in series.points],
        "mean": [significant(here.mean) for here in spreads],
        "n": counts[0] if len(counts) == 1 else [here.n for here in spreads],
    }
    if counts != [1]:
        result["low"] = [significant(here.low) for here in spreads]
        result["high"] = [significant(here.high) for here in spreads]
    return result


def specification(panel: Panel, rows: Sequence[str]) -> dict[str, Any]:
    """Return the Vega-Lite specification of a panel; `rows` are all settings of the page."""
    numbers = range(len(rows))
    look = {
        "color": {"field": "row", "type": "nominal", "scale": {"domain": list(rows)}},
        "strokeDash": _scaled("row", rows, [dashes(number) for number in numbers]),
        "shape": _scaled("row", rows, [mark(number) for number in numbers]),
    }
    for channel in look.values():
        channel["legend"] = None
    few = all(len(series.points) <= _POINTS_SHOWN for series in panel.series)
    across, up = _across(panel), _up(panel)
    color = look["color"]
    line = [
        {"type": "line", "strokeWidth": 1.8, "interpolate": "linear"},
        {"x": across, "y": up, "color": color, "strokeDash": look["strokeDash"]},
    ]
    points = {"x": across, "y": up, "color": color, "shape": look["shape"]}
    layers: list[dict[str, Any]] = [
        {
            "name": "band",
            "transform": [{"filter": "datum.n > 1"}],
            "mark": {"type": "area", "opacity": 0.13, "aria": False},
            "encoding": {
                "x": across,
                "y": {**up, "field": "low"},
                "y2": {"field": "high"},
                "color": color,
            },
        },
        {"transform": [_MEANS], "mark": {**line[0], "aria": False}, "encoding": line[1]},
    ]
    if few:
        drawn = {"type": "point", "filled": True, "size": 42, "opacity": 1, "aria": False}
        layers.append({"transform": [_MEANS], "mark": drawn, "encoding": points})
    if panel.ended:
        layers.append(_ended(across, up, color))
    layers.append(_hover(points))
    plot = {"height": 190, "layer": layers}
    if panel.facets == ("",):
        return {"description": panel.title, "data": {"name": "points"}, **plot}
    return {
        "description": panel.title,
        "data": {"name": "points"},
        "facet": {
            "field": "facet",
            "type": "nominal",
            "sort": list(panel.facets),
            "title": None,
        },
        "spec": plot,
    }


_MEANS = {"filter": "datum.n > 0"}


def _scaled(field: str, domain: Sequence[str], scale: Sequence[Any]) -> dict[str, Any]:
    scales = {"domain": list(domain), "range": list(scale)}
    return {"field": field, "type": "nominal", "scale": scales}


def _across(panel: Panel) -> dict[str, Any]:
    axis: dict[str, Any] = {"format": ",.10~g", "labelFlush": False, "grid": False}
    scale: dict[str, Any] = {"nice": False}
    if panel.ticks:
        axis["values"] = list(panel.ticks)
        log = logarithmic(panel.ticks, log_from=_LOG_ACROSS)
        scale |= {"padding": 10, **({"type": "log"} if log else {"zero": False})}
    else:
        axis["tickCount"] = 4
        scale["zero"] = True
    title = panel.across
    return {"field": "x", "type": "quantitative", "title": title, "axis": axis, "scale": scale}


def _up(panel: Panel) -> dict[str, Any]:
    values = panel.values
    scale: dict[str, Any] = {"zero": False, "nice": True}
    axis: dict[str, Any] = {"format": ".4~g", "tickCount": 5}
    if panel.log_from is not None and logarithmic(values, log_from=panel.log_from):
        scale = {"type": "log", "nice": False, "padding": 4}
        axis["values"] = _log_ticks(min(values), max(values))
    elif values and 0 < max(map(abs, values)) < 1e-3:
        axis["format"] = ".3~e"
    title = panel.unit or None
    return {"field": "mean", "type": "quantitative", "title": title, "axis": axis, "scale": scale}


def _log_ticks(low: float, high: float) -> list[float]:
    """Return the marks of a logarithmic axis, from the power of ten below to that above."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    within = range(1, 10) if high / low < _NARROW else within_decades(high / low)
    return [float(f"{mark}e{power}") for power in powers for mark in within]


def _ended(across: dict[str, Any], up: dict[str, Any], color: dict[str, Any]) -> dict[str, Any]:
    cross = {"type": "point", "shape": "M-1,-1L1,1M-1,1L1,-1", "size": 60, "strokeWidth": 2.4}
    return {
        "name": "ended",
        "transform": [{"filter": "datum.n == 0"}],
        "mark": {**cross, "opacity": 1, "tooltip": {"content": "data"}, "aria": False},
        "encoding": {"x": across, "y": up, "color": color},
    }


def _hover(points: dict[str, Any]) -> dict[str, Any]:
    """Return the layer that shows the nearest point; the page's script writes its values."""
    near = {"type": "point", "on": "pointerover", "clear": "pointerout", "nearest": True}
    shape = {"type": "point", "filled": True, "size": 90, "tooltip": {"content": "data"}}
    return {
        "transform": [_MEANS],
        "params": [{"name": "near", "select": near}],
        "mark": {**shape, "aria": False},
        "encoding": {
            **points,
            "opacity": {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0},
        },
    }
