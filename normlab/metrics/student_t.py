"""Student's t distribution, which every table of intervals and p values needs.

SciPy has it too, but takes half a second to import, longer than `normlab compare` takes in all. A
test compares both.
"""

import math
from functools import lru_cache

_TINY = 1e-300  # instead of zero, by which the continued fraction would divide


def upper_tail(t: float, degrees: int) -> float:
    """Return P(T >= t)."""
    if t < 0:
        return 1 - upper_tail(-t, degrees)
    a, square = degrees / 2, t * t
    x, rest = degrees / (degrees + square), square / (degrees + square)
    if x < (a + 1) / (a + 2.5):
        return _incomplete_beta(a, 0.5, x, rest) / 2
    return (1 - _incomplete_beta(0.5, a, rest, x)) / 2


@lru_cache(maxsize=256)
def quantile(confidence: float, degrees: int) -> float:
    """Return the t for which P(|T| <= t) equals `confidence`."""
    tail, low, high = (1 - confidence) / 2, 0.0, math.pi / 2
    for _ in range(100):  # bisects the angle whose tangent is t / sqrt(degrees)
        middle = (low + high) / 2
        above = upper_tail(math.tan(middle) * math.sqrt(degrees), degrees) > tail
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
