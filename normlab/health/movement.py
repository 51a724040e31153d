"""By how much values move, as a share of their size, and what of that is rounding."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

ROUNDING = 1e-5
"""A relative movement that the order of float32 sums explains, through some tens of layers."""


def rms(values: Float[Tensor, "..."]) -> float:
    """Return the root mean square, taken in float64; 0 of nothing."""
    wide = values.double()
    return float(torch.linalg.vector_norm(wide)) / math.sqrt(max(wide.numel(), 1))


def over(part: float, whole: float) -> float:
    """Return a quotient of sizes: 0 where both are 0, infinity over 0 alone."""
    if whole == 0:
        return 0.0 if part == 0 else math.inf
    return part / whole


def movement(values: Float[Tensor, "*any"], base: Float[Tensor, "*any"]) -> float:
    """Return RMS(values - base) / RMS(base)."""
    return over(rms(values - base), rms(base))


def deviation(values: Float[Tensor, "sets *any"]) -> float:
    """Return the RMS over sets of the deviation from their mean, over the RMS of all values."""
    wide = values.double()
    return over(rms(wide - wide.mean(0)), rms(wide))


def by_how_much(share: float) -> str:
    """Put a relative movement into words: `by 12.3 %`, or `not at all`."""
    if share == 0:
        return "not at all"
    if share < ROUNDING:
        return "not at all (rounding)"
    return f"by {percent(share)}"


def percent(share: float) -> str:
    """Return a share in percent with three significant digits: `0.0123 %`, `12.3 %`, `123 %`."""
    if not math.isfinite(share):
        return f"{share} %"
    places = 2 if share == 0 else max(0, 2 - math.floor(math.log10(abs(100 * share))))
    return f"{100 * share:.{places}f} %"
