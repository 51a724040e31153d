"""How far a mean over a few seeds can be trusted: Student's t interval, by SciPy.

Student's distribution alone is imported, when it is needed: lists of runs must not wait for it.
"""

# SciPy has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from normlab.records.aggregate import deviation


@dataclass(frozen=True)
class Interval:
    """A mean, its standard deviation (n - 1), its n, and the bounds of its confidence interval."""

    mean: float
    sd: float
    n: int
    low: float
    high: float


def t_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Bound the mean of independent values; raises `ValueError` for fewer than two."""
    if len(values) < 2:
        raise ValueError(f"an interval needs at least two values, found {len(values)}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; allowed: between 0 and 1")
    mean = statistics.fmean(values)
    sd = deviation(values, mean)
    half = _quantile(len(values) - 1, confidence) * sd / math.sqrt(len(values))
    return Interval(mean, sd, len(values), mean - half, mean + half)


def paired_interval(
    a: Mapping[int, float], b: Mapping[int, float], *, confidence: float = 0.95
) -> Interval:
    """Bound the mean of `a - b` over the seeds that both have.

    Seed k of two norms starts from the same other weights and sees the same batches, so what both
    share cancels in the difference.
    """
    seeds = sorted(a.keys() & b.keys())
    return t_interval([a[seed] - b[seed] for seed in seeds], confidence=confidence)


def p_value(interval: Interval, *, against: float = 0.0) -> float:
    """Return the two-sided p value of a mean of `against`, by Student's t test."""
    distance = abs(interval.mean - against)
    if interval.sd == 0:
        return 1.0 if distance == 0 else 0.0
    error = interval.sd / math.sqrt(interval.n)
    return min(1.0, 2 * upper_tail(distance / error, interval.n - 1))


def upper_tail(t: float, degrees: int) -> float:
    """Return the probability of more than t under Student's distribution."""
    from scipy.special import stdtr

    return float(stdtr(degrees, -t))


@lru_cache(maxsize=256)  # a table asks for few of them, and often
def _quantile(degrees: int, confidence: float) -> float:
    """Return the t that a share `confidence` of Student's distribution does not exceed in size."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + confidence) / 2))
