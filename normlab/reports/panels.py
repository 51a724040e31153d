"""What a chart shows; `templates/charts.js` draws it on pages, `figures.py` on paper.

A line is the mean over seeds and a band reaches from the lowest to the highest of them. The facets
of a panel share its axes.
"""

import math
import re
import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from normlab.reports.runs import significant

STEP = "training step"
LOG_FROM = 10.0
"""Ratio of largest to smallest value from which an axis is logarithmic."""
HUES = 7
NORM_HUES = {
    **{"ln": 0, "bn": 1, "rms": 2, "pn": 3, "gn": 4, "dyt": 5, "none": 6},
    **{"bn_rms": 5, "bn_position": 3, "bn_sample": 4, "bn_noisy": 5, "global": 2, "gn_sample": 5},
    **{"brn": 2, "rbn": 5, "mabn": 4, "repbn": 0, "prepbn": 2, "un": 3, "pn_v": 2, "prms": 3},
    **{"in": 5, "seqn": 3, "ada": 4, "derf": 2, "scale": 3},
}
"""The hue of each norm, the same in every chart; any other label has one by its checksum."""
DASHES = ("none", "7 3", "2 2", "8 3 2 3")
MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
_POINTS_SHOWN = 12  # a line of so few points has a mark at each
_NARROW = 6.0  # ratio below which a logarithmic axis is marked at each whole number
_LOG_ACROSS = 4.0  # batch sizes and depths are doubled rather than added to


@dataclass(frozen=True)
class Theme:
    """The colours of a variant: paper, ink, quiet ink, grid, and the hues of lines."""

    name: str
    paper: str
    ink: str
    quiet: str
    grid: str
    hues: tuple[str, ...]


LIGHT = Theme(
    "light",
    paper="#ffffff",
    ink="#1b1f24",
    quiet="#5b636d",
    grid="#e4e7eb",
    hues=("#0072b2", "#d55e00", "#009e73", "#b8558f", "#3a9bd9", "#b87a00", "#1b1f24"),
)
DARK = Theme(
    "dark",
    paper="#0f1318",
    ink="#e8ebef",
    quiet="#9aa4b0",
    grid="#262d36",
    hues=("#4aa8e8", "#ff8a3d", "#2fd3a2", "#e79ac6", "#9ad5fb", "#f0bd4c", "#e8ebef"),
)
THEMES = (LIGHT, DARK)


@dataclass(frozen=True)
class Look:
    """How the lines of a row look in every chart: numbers of its hue, dashes and mark."""

    name: str
    hue: int
    dashes: int
    mark: int

    @property
    def spelled(self) -> dict[str, Any]:
        """Return the look as pages take it."""
        return {**asdict(self), "dashes": DASHES[self.dashes], "mark": MARKS[self.mark]}


@dataclass(frozen=True)
class Spread:
    """The seeds still running at a step: their mean, lowest and highest value, and number."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Series:
    """A line: its row, the facet it is in, and its points by x.

    `at` names the point of the grid of each x, or the one point of the whole line.
    """

    row: str
    facet: str
    at: str | tuple[str, ...]
    points: dict[float, Spread]


@dataclass(frozen=True)
class Event:
    """A loss spike or the divergence of a seed; `value` is the last loss, None before the first."""

    kind: str
    row: str
    at: str
    seed: int
    step: int
    value: float | None


@dataclass(frozen=True)
class Panel:
    """What one chart shows.

    `ticks` are the places of the horizontal axis, and their names if they have any; `log_from` is
    the ratio of values from which the vertical axis is logarithmic, None for never.
    """

    name: str
    title: str
    unit: str
    series: tuple[Series, ...]
    across: str = STEP
    ticks: tuple[float, ...] = ()
    tick_names: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    log_from: float | None = LOG_FROM

    @property
    def id(self) -> str:
        """Return a name for the page that is also valid for a metric with odd letters."""
        return "chart-" + re.sub(r"[^a-z0-9]+", "-", f"{self.across}-{self.name}".lower())

    @property
    def facets(self) -> tuple[str, ...]:
        """Return the small multiples in their order."""
        return tuple(dict.fromkeys(line.facet for line in self.series))

    @property
    def values(self) -> list[float]:
        """Return all values of the vertical axis."""
        spreads = [here for line in self.series for here in line.points.values()]
        return [value for here in spreads for value in (here.low, here.mean, here.high)]

    @property
    def logarithmic(self) -> bool:
        """Tell whether the vertical axis is logarithmic."""
        return self.log_from is not None and _reaches(self.values, self.log_from)

    @property
    def summary(self) -> str:
        """Return the last value of each line in a sentence, for readers who do not see it."""
        ends = [(line, *list(line.points.items())[-1]) for line in self.series]
        said = ", ".join(
            f"{f'{line.row} {line.facet}'.strip()} {here.mean:.4g} at {x:,.10g}"
            for line, x, here in ends
        )
        return f"{self.title} by {self.across}, one line per setting. At its end: {said}."


def looks_of(rows: Mapping[str, str]) -> dict[str, Look]:
    """Return the looks of rows, given with their norms: the hue by norm, the rest by order."""
    found: dict[str, Look] = {}
    taken: set[tuple[int, int]] = set()
    for number, (row, norm) in enumerate(rows.items()):
        own = NORM_HUES.get(norm, zlib.crc32(norm.encode()) % (HUES - 1))
        # Rows of one norm differ in their dashes; more rows than these take other hues.
        ways = [
            ((own + m) % HUES, (number + n) % len(DASHES))
            for m in range(HUES)
            for n in range(len(DASHES))
        ]
        hue, dashes = next((way for way in ways if way not in taken), ways[0])
        taken.add((hue, dashes))
        found[row] = Look(row, hue, dashes, number % len(MARKS))
    return found


def spread(curves: Sequence[Mapping[float, float]]) -> dict[float, Spread]:
    """Join the curves of seeds at the steps that all seeds still running there have."""
    last = [max(curve, default=-math.inf) for curve in curves]
    result: dict[float, Spread] = {}
    for x in sorted({x for curve in curves for x in curve}):
        running = [curve for curve, end in zip(curves, last, strict=True) if x <= end]
        if all(x in curve for curve in running):
            values = [curve[x] for curve in running]
            result[x] = Spread(statistics.fmean(values), min(values), max(values), len(values))
    return result


def _reaches(values: Sequence[float], ratio: float) -> bool:
    """Tell whether all values are positive, and the largest is `ratio` times the smallest."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= ratio


def data(
    panels: Sequence[Panel],
    looks: Mapping[str, Look],
    tokens: Sequence[Mapping[str, Any]] = (),
    unit: str = "tokens",
) -> dict[str, Any]:
    """Return what `templates/charts.js` draws panels from.

    `tokens` are those that each setting had seen at its steps, counted in `unit`.
    """
    return {
        "panels": [_data(panel) for panel in panels],
        "tokens": list(tokens),
        "unit": unit,
        "looks": [look.spelled for look in looks.values()],
    }


def _data(panel: Panel) -> dict[str, Any]:
    """Return the axes, lines and divergences of a panel."""
    return {
        "id": panel.id,
        "title": panel.title,
        "across": panel.across,
        "unit": panel.unit,
        "facets": list(panel.facets),
        "log": {"x": _reaches(panel.ticks, _LOG_ACROSS), "y": panel.logarithmic},
        "ticks": {
            "x": list(panel.ticks) or None,
            "y": _log_ticks(panel.values) if panel.logarithmic else None,
        },
        "marked": all(len(line.points) <= _POINTS_SHOWN for line in panel.series),
        "series": [_columns(line) for line in panel.series],
        "ended": [
            {"row": end.row, "at": end.at, "seed": end.seed, "x": end.step, "mean": end.value}
            for end in panel.events
            if end.kind == "diverged" and end.value is not None
        ],
    }


def _columns(line: Series) -> dict[str, Any]:
    """Return a line by columns, which take a third of the space of rows."""
    spreads = list(line.points.values())
    counts = sorted({here.n for here in spreads})
    result: dict[str, Any] = {
        "row": line.row,
        "facet": line.facet,
        "at": line.at if isinstance(line.at, str) else list(line.at),
        "x": [int(x) if x == int(x) else x for x in line.points],
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
    reach = high / low
    marks = (1, 2, 3, 5) if reach < 30 else (1, 3) if reach < 300 else (1,)
    within = range(1, 10) if reach < _NARROW else marks
    return [float(f"{mark}e{power}") for power in powers for mark in within]
