"""Intervals and significance tests for means and shares over a few seeds.

Student's t distribution is computed here, because importing SciPy takes longer than all of
`normlab compare`. A test compares it with SciPy's. Only the power of a test needs SciPy.
"""

# SciPy has no type annotations.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from normlab.records.pairs import Summary

_ROUNDING = 1e-12  # smaller differences between float64 values count as zero
_TINY = 1e-300  # replaces a zero by which the continued fraction would divide


class Interval(NamedTuple):
    """A mean, the standard deviation (n - 1), n, and the bounds of a confidence interval."""

    mean: float
    sd: float
    n: int
    low: float
    high: float


def t_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Return the t interval for the mean of two or more independent values."""
    if (n := len(values)) < 2:
        raise ValueError(f"an interval needs at least two values, found {n}")
    summary = Summary.of(values)
    sd = math.nan if summary.sd is None else summary.sd
    half = quantile_of_t(confidence, n - 1) * sd / math.sqrt(n)
    return Interval(summary.mean, sd, n, summary.mean - half, summary.mean + half)


def constant(values: Sequence[float]) -> bool:
    """Return whether all values are equal up to rounding, so that a t interval is meaningless."""
    return max(values) - min(values) <= _ROUNDING


def paired_interval(a: Mapping[int, float], b: Mapping[int, float]) -> Interval:
    """Return the 95 % t interval for the mean of `a - b`, paired over the seeds that both have.

    Two models with the same seed share their batches and, except in the norms, their initial
    weights, so the effects of both cancel in the difference.
    """
    return t_interval([a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())])


def _upper_tail(distance: float, interval: Interval) -> float:
    """Return the one-sided p value of a mean this far from the null. It is 0 or 1 if sd is 0."""
    if interval.sd == 0:
        return 0.0 if distance > 0 else 1.0
    error = interval.sd / math.sqrt(interval.n)
    return upper_tail_of_t(distance / error, interval.n - 1)


def p_value(interval: Interval, *, against: float = 0.0) -> float:
    """Return the two-sided p value of a t test whose null hypothesis is mean = `against`."""
    return min(1.0, 2 * _upper_tail(abs(interval.mean - against), interval))


def equivalence(values: Sequence[float], margin: float) -> float:
    """Return the p value of two one-sided t tests (TOST) that the mean is within +-margin.

    It is below a if and only if the interval with confidence level 1 - 2a is within the margin
    (Schuirmann 1987).
    """
    interval = t_interval(values)
    return _upper_tail(margin - abs(interval.mean), interval)


def smallest_difference(interval: Interval, *, error: float, power: float = 0.8) -> float:
    """Return the difference that a paired t test with this sd and n detects with this power.

    The test is two-sided at level `error`. Detections in the wrong direction do not count.
    """
    from scipy.special import nctdtrinc

    degrees = interval.n - 1
    shift = float(nctdtrinc(degrees, 1 - power, quantile_of_t(1 - error, degrees)))
    return interval.sd * shift / math.sqrt(interval.n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values, corrected for multiple comparisons (Holm 1979), in the same order."""
    ordered = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(ordered):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def wilson(count: int | float, total: int) -> tuple[float, float]:
    """Return the bounds of the 95 % Wilson interval (1927) for the share `count / total`."""
    z = statistics.NormalDist().inv_cdf(0.975)
    share = min(max(count / total, 0.0), 1.0)  # a record may be from anyone
    scale = 1 + z * z / total
    middle = (share + z * z / (2 * total)) / scale
    half = z / scale * math.sqrt((share * (1 - share) + z * z / (4 * total)) / total)
    return middle - half, middle + half


def binomial(count: int, total: int) -> float:
    """Return the two-sided p value of the exact binomial test of a true share of one half."""
    ways = [math.comb(total, k) for k in range(total + 1)]
    return sum(each for each in ways if each <= ways[count]) / 2**total


def fisher(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the two-sided p value of Fisher's exact test (1922) for two shares (count, total)."""
    (count, total), (other, rest) = first, second
    both = count + other
    ways = [math.comb(total, k) * math.comb(rest, both - k) for k in range(both + 1)]
    return sum(each for each in ways if each <= ways[count]) / sum(ways)


# Student's t distribution -------------------------------------------------------------------------


def upper_tail_of_t(t: float, degrees: int) -> float:
    """Return P(T >= t) for Student's t distribution with this many degrees of freedom."""
    if t < 0:
        return 1 - upper_tail_of_t(-t, degrees)
    a, square = degrees / 2, t * t
    x, rest = degrees / (degrees + square), square / (degrees + square)
    if x < (a + 1) / (a + 2.5):
        return _incomplete_beta(a, 0.5, x, rest) / 2
    return (1 - _incomplete_beta(0.5, a, rest, x)) / 2


@lru_cache(maxsize=256)
def quantile_of_t(confidence: float, degrees: int) -> float:
    """Return the t for which P(|T| <= t) is `confidence`."""
    tail, low, high = (1 - confidence) / 2, 0.0, math.pi / 2
    for _ in range(100):  # bisect the angle whose tangent is t / sqrt(degrees)
        middle = (low + high) / 2
        above = upper_tail_of_t(math.tan(middle) * math.sqrt(degrees), degrees) > tail
        low, high = (middle, high) if above else (low, middle)
    return math.tan(low) * math.sqrt(degrees)


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b), where `rest` is 1 - x.

    It is computed from its continued fraction (DLMF 8.17.22) by Lentz's method, which converges
    fast for x below (a + 1) / (a + b + 2).
    """
    if x == 0:
        return 0.0
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log(rest) - log_beta) / a
    upper, lower, fraction = 1.0, 0.0, 1.0
    for n in range(1000):
        m = n // 2
        if n == 0:
            term = 1.0
        elif n % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1 / (1 + term * lower or _TINY)
        upper = 1 + term / upper or _TINY
        fraction *= upper * lower
        if n and abs(upper * lower - 1) < 1e-16:
            break
    return front * (fraction - 1)
