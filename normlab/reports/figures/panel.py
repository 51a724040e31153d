"""The content of a chart: `charts.js` draws it on pages, `drawing.py` in figures for papers.

A line is the mean over seeds; its band spans the lowest to the highest seed. The facets of a panel
share their vertical axis.
"""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

STEP = "training step"
LOG_FROM = 10.0
"""An axis is logarithmic if the ratio of its largest to its smallest value is at least this."""
_LOG_ACROSS = 4.0  # lower, because batch sizes and depths grow by doubling


@dataclass(frozen=True)
class Series:
    """A line, stored by column: x, then mean, lowest, highest and number of seeds at each x.

    `at` is the grid point of the whole line, or of each x. `lost` lists the diverged seeds as
    (seed, x, mean of the others or last finite value; None if there is none).
    """

    row: str
    facet: str
    at: str | tuple[str, ...]
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    n: tuple[int, ...]
    lost: tuple[tuple[int, int | float, float | None], ...] = ()

    @classmethod
    def of_seeds(
        cls, row: str, facet: str, at: str, curves: Sequence[Mapping[float, float]]
    ) -> "Series":
        """Average the curves of seeds, at each x that every seed still running at x has logged."""
        ends = [max(curve, default=-math.inf) for curve in curves]
        points: list[tuple[float, float, float, float, int]] = []
        for x in sorted({x for curve in curves for x in curve}):
            running = [curve for curve, end in zip(curves, ends, strict=True) if x <= end]
            if all(x in curve for curve in running):
                values = [curve[x] for curve in running]
                points.append((x, statistics.fmean(values), min(values), max(values), len(values)))
        return cls(row, facet, at, *(zip(*points, strict=True) if points else [()] * 5))


@dataclass(frozen=True)
class Panel:
    """The content of one chart.

    `ticks` are positions on the horizontal axis, `tick_names` their labels, if any. The vertical
    axis is logarithmic if the ratio of its largest to its smallest value reaches `log_from` (None:
    never), and the horizontal axis if `log_across` is set or its ticks span a large ratio. Points
    that are not `joined` have bars instead of a line with a band. `number` distinguishes charts
    with the same name on a page.
    """

    name: str
    title: str
    unit: str
    series: tuple[Series, ...]
    across: str = STEP
    ticks: tuple[float, ...] = ()
    tick_names: tuple[str, ...] = ()
    log_from: float | None = LOG_FROM
    log_across: bool = False
    joined: bool = True
    number: str = ""

    @property
    def id(self) -> str:
        name = re.sub(r"[^a-z0-9]+", "-", f"{self.across}-{self.name}".lower())
        return f"chart{self.number}-{name}"

    @property
    def facets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line.facet for line in self.series))

    @property
    def axis_title(self) -> str:
        """The score with its unit, for the axis of a chart without a title."""
        return self.title + (f" ({self.unit})" if self.unit not in ("", self.title) else "")

    @property
    def seeds(self) -> set[int]:
        """The number of seeds behind each mean."""
        return {n for line in self.series for n in line.n if n > 1}

    @property
    def logarithmic(self) -> bool:
        values = [y for line in self.series for y in (*line.low, *line.mean, *line.high)]
        return self.log_from is not None and _reaches(values, self.log_from)

    @property
    def logarithmic_across(self) -> bool:
        return self.log_across or (self.joined and _reaches(self.ticks, _LOG_ACROSS))

    @property
    def summary(self) -> str:
        """Return the last value of each line as text, for readers who cannot see the chart."""
        ends = "; ".join(
            f"{joined(line.row, line.facet)}: {line.mean[-1]:.4g} at {self._tick(line.x[-1])}"
            for line in self.series
            if line.x
        )
        return f"{self.title} by {self.across}, one line per setting. At its end: {ends}."

    def _tick(self, x: float) -> str:
        """Return the label of the tick nearest to a position, or the position."""
        if not self.tick_names:
            return f"{x:,.10g}"
        near = min(range(len(self.ticks)), key=lambda n: abs(self.ticks[n] - x))
        return self.tick_names[near]


def joined(*parts: str) -> str:
    """Return the parts of a name with commas between them, without empty ones."""
    return ", ".join(filter(None, parts))


def _reaches(values: Sequence[float], ratio: float) -> bool:
    """Return whether all values are positive and max / min is at least `ratio`."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= ratio
