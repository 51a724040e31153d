"""What a chart of a page shows, as the page's script (`templates/charts.js`) draws it.

A line is the mean over seeds and a band reaches from the lowest to the highest of them. Small
multiples share their axes. The script adds what depends on the reader: the width, the colors of the
theme, the data that the filters leave.
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
_STROKES = ("none", "7 3", "2 2", "8 3 2 3")
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


def dashes(number: int) -> str:
    """Return the dashes of a line by its number, as SVG writes them."""
    return _STROKES[number % len(_STROKES)]


def mark(number: int) -> str:
    """Return the mark of a line by its number."""
    return _MARKS[number % len(_MARKS)]


def data(panel: Panel) -> dict[str, Any]:
    """Return what the page's script draws a panel from: its axes, its lines, its divergences."""
    log = panel.log_from is not None and logarithmic(panel.values, log_from=panel.log_from)
    across = bool(panel.ticks) and logarithmic(panel.ticks, log_from=_LOG_ACROSS)
    return {
        "id": panel.id,
        "title": panel.title,
        "across": panel.across,
        "unit": panel.unit,
        "facets": list(panel.facets),
        "log": {"x": across, "y": log},
        "ticks": {"x": list(panel.ticks) or None, "y": _log_ticks(panel.values) if log else None},
        "marked": all(len(series.points) <= _POINTS_SHOWN for series in panel.series),
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


def _log_ticks(values: Sequence[float]) -> list[float]:
    """Return the marks of a logarithmic axis, from the power of ten below to that above."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    within = range(1, 10) if high / low < _NARROW else within_decades(high / low)
    return [float(f"{mark}e{power}") for power in powers for mark in within]
