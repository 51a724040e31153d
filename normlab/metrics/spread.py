"""Decides how far a mean over a few seeds can be trusted: Student's t interval.

The quantile is computed rather than tabled: for a whole number of degrees of freedom the
distribution of t is a finite sum (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).
"""

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
    mean = statistics.fmean(values)
    sd = deviation(values, mean)
    half = t_quantile(len(values) - 1, confidence=confidence) * sd / math.sqrt(len(values))
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


def p_value(interval: Interval) -> float:
    """Return the two-sided p value of a mean of zero, by Student's t test of the same values."""
    if interval.sd == 0:
        return 1.0 if interval.mean == 0 else 0.0
    t = abs(interval.mean) / (interval.sd / math.sqrt(interval.n))
    degrees = interval.n - 1
    return 1 - _share(math.atan(t / math.sqrt(degrees)), degrees)


@lru_cache(maxsize=256)  # a table asks for few of them, and often
def t_quantile(degrees: int, *, confidence: float) -> float:
    """Return the t that a share `confidence` of Student's distribution does not exceed in size."""
    if degrees < 1:
        raise ValueError(f"degrees is {degrees}; allowed: 1 and more")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; allowed: between 0 and 1")
    # The share is a function of theta = atan(t / sqrt(degrees)) that rises from 0 to 1.
    low, high = 0.0, math.pi / 2
    while True:
        middle = (low + high) / 2
        if middle in (low, high):  # two neighbouring floats
            return math.sqrt(degrees) * math.tan(middle)
        low, high = (middle, high) if _share(middle, degrees) < confidence else (low, middle)


def _share(theta: float, degrees: int) -> float:
    """Return the probability of |T| <= sqrt(degrees) tan(theta)."""
    odd = degrees % 2
    cosine = math.cos(theta)
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 + odd, degrees, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total
