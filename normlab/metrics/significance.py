"""Intervals and significance tests for means and shares over a few seeds.

Only the power of a test needs SciPy, which takes half a second to import.
"""

# SciPy has no type annotations.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from normlab.metrics.student_t import quantile, upper_tail
from normlab.records.pairs import Summary


class Interval(NamedTuple):
    """A mean, its standard deviation (n - 1), n, and the bounds of the confidence interval."""

    mean: float
    sd: float
    n: int
    low: float
    high: float


def t_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Return the t interval for the mean of at least two independent values."""
    if (n := len(values)) < 2:
        raise ValueError(f"an interval needs at least two values, found {n}")
    summary = Summary.of(values)
    sd = math.nan if summary.sd is None else summary.sd
    half = quantile(confidence, n - 1) * sd / math.sqrt(n)
    return Interval(summary.mean, sd, n, summary.mean - half, summary.mean + half)


def paired_interval(a: Mapping[int, float], b: Mapping[int, float]) -> Interval:
    """Return the 95 % t interval for the mean of `a - b`, paired over their common seeds.

    With the same seed, two models share initial weights (except in the norms) and batches, so the
    effects of weights and batches cancel in the difference.
    """
    return t_interval([a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())])


def _upper_tail(distance: float, interval: Interval) -> float:
    """Return the one-sided p value of a mean at this distance (Student's t); 0 or 1 if sd is 0."""
    if interval.sd == 0:
        return 0.0 if distance > 0 else 1.0
    error = interval.sd / math.sqrt(interval.n)
    return upper_tail(distance / error, interval.n - 1)


def p_value(interval: Interval, *, against: float = 0.0) -> float:
    """Return the two-sided p value of a t test of the null hypothesis mean = `against`."""
    return min(1.0, 2 * _upper_tail(abs(interval.mean - against), interval))


def equivalence(values: Sequence[float], margin: float) -> float:
    """Return the p value of two one-sided t tests (TOST) for a mean within +-margin.

    It is below `a` if and only if the `1 - 2a` interval is within the margin (Schuirmann 1987).
    """
    interval = t_interval(values)
    return _upper_tail(margin - abs(interval.mean), interval)


def smallest_difference(interval: Interval, *, error: float, power: float = 0.8) -> float:
    """Return the difference that a paired t test with this sd and n detects with power `power`.

    The test is two-sided at level `error`. Detections in the wrong direction are not counted.
    """
    from scipy.special import nctdtrinc

    degrees = interval.n - 1
    shift = float(nctdtrinc(degrees, 1 - power, quantile(1 - error, degrees)))
    return interval.sd * shift / math.sqrt(interval.n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for multiple comparisons (Holm 1979), in the given order."""
    ordered = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(ordered):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def wilson(count: int | float, total: int) -> tuple[float, float]:
    """Return the bounds of the 95 % Wilson interval (1927) for the share `count / total`."""
    z = statistics.NormalDist().inv_cdf(0.975)
    share, scale = count / total, 1 + z * z / total
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
