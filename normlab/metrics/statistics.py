"""Tests and intervals by which claims are decided, from SciPy and statsmodels.

The libraries take a second to import, so each function imports what it needs.
"""

# The libraries have no types.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportArgumentType=false, reportOptionalIterable=false

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from normlab.metrics.spread import Interval, t_interval, upper_tail


def equivalence(values: Sequence[float], margin: float) -> float:
    """Return the p value of two one-sided t tests (TOST) of a mean outside -margin to +margin.

    It is below `a` exactly where the `1 - 2a` interval lies within the margin (Schuirmann 1987).
    """
    found = t_interval(values)
    if found.sd == 0:
        return 0.0 if abs(found.mean) < margin else 1.0
    error = found.sd / math.sqrt(found.n)
    return upper_tail((margin - abs(found.mean)) / error, found.n - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number (Holm 1979), in their order."""
    if not p_values:
        return []
    from statsmodels.stats.multitest import multipletests

    return [float(p) for p in multipletests(list(p_values), method="holm")[1]]


def wilson(count: int | float, total: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the bounds of a share, `count` of `total` (Wilson 1927)."""
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(count, total, alpha=1 - confidence, method="wilson")
    return float(low), float(high)


def accuracy_interval(name: str, value: float, n: int) -> tuple[float, float] | None:
    """Return Wilson's interval of the accuracy on n pictures; None for a score of another name.

    It says what other pictures could change, which is no part of a spread over seeds. Tokens of a
    text are not independent, so that accuracies on these have none.
    """
    return wilson(value * n, n) if name.rpartition("/")[2] == "accuracy" and n else None


def binomial(count: int, total: int, *, against: float) -> float:
    """Return the two-sided p value of a true share, by the exact binomial test."""
    from scipy.stats import binomtest

    return float(binomtest(count, total, against).pvalue)


def least_share(total: int, *, confidence: float = 0.95) -> float:
    """Return the lower end of the exact interval of a share, where all of `total` are counted.

    Clopper and Pearson 1934.
    """
    return ((1 - confidence) / 2) ** (1 / total)


def fisher(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the two-sided p value of equal shares, each given as count and total (Fisher 1922)."""
    from scipy.stats import fisher_exact

    table = [[count, total - count] for count, total in (first, second)]
    return min(1.0, float(fisher_exact(table)[1]))


def smallest_difference(interval: Interval, *, error: float, power: float = 0.8) -> float:
    """Return the smallest difference that a paired t test of such values would find.

    It is found with probability `power` at two-sided error `error`, from values whose standard
    deviation is that of `interval`.
    """
    return interval.sd * _effect(interval.n, error, power)


@lru_cache(maxsize=64)
def _effect(n: int, error: float, power: float) -> float:
    """Return the difference in standard deviations that n pairs show."""
    from statsmodels.stats.power import TTestPower

    solved = TTestPower().solve_power(effect_size=None, nobs=n, alpha=error, power=power)
    return float(solved)
