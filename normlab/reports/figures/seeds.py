"""Decides how the seeds of an experiment become one line: the mean bold, the seeds faint.

The mean at a step is that over the seeds still running there, and stands only at steps that all of
them have; what is not finite is a gap. Seeds that diverged are marked where they end.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from normlab.reports.figures.style import Line, marked_at

if TYPE_CHECKING:
    import matplotlib.axes

Curve = Mapping[float, float]
_MANY = 8  # points up to which each has its mark


def finite(points: Sequence[tuple[int, float]]) -> dict[float, float]:
    """Return the finite values by their steps; of two at one step the later."""
    return {float(x): y for x, y in points if math.isfinite(y)}


@dataclass(frozen=True)
class Spread:
    """What the seeds still running at a step say: mean, lowest, highest, and how many they are."""

    mean: float
    low: float
    high: float
    n: int


def spread(curves: Sequence[Curve]) -> dict[float, Spread]:
    """Join the curves of seeds, step by step."""
    last = [max(curve, default=-math.inf) for curve in curves]
    result: dict[float, Spread] = {}
    for x in sorted({x for curve in curves for x in curve}):
        running = [curve for curve, end in zip(curves, last, strict=True) if x <= end]
        if all(x in curve for curve in running):
            values = [curve[x] for curve in running]
            result[x] = Spread(statistics.fmean(values), min(values), max(values), len(values))
    return result


def mean(curves: Sequence[Curve]) -> dict[float, float]:
    """Return the mean curve of several."""
    return {x: here.mean for x, here in spread(curves).items()}


def draw_curves(
    axes: "matplotlib.axes.Axes", curves: Sequence[Curve], line: Line, *, number: int
) -> tuple[float, float] | None:
    """Draw the curves of an experiment's seeds, and return where their mean ends."""
    curves = [curve for curve in curves if curve]
    if len(curves) > 1:
        for curve in curves:
            axes.plot(
                list(curve),
                list(curve.values()),
                color=line.hue,
                linewidth=0.6,
                alpha=0.35,
                label="seed",
            )
    middle = mean(curves)
    if not middle:
        return None
    axes.plot(
        list(middle),
        list(middle.values()),
        color=line.hue,
        linestyle=line.stroke,
        linewidth=1.3,
        marker=line.mark,
        markersize=3.0,
        markevery=1 if len(middle) <= _MANY else marked_at(len(middle), number),
        label="mean",
    )
    return list(middle.items())[-1]
