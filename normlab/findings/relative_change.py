"""How much a tensor has changed (moved), relative to its size: RMS(new - old) / RMS(old)."""

import math
from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Oddity = Literal["", "became NaN", "was NaN", "became infinite", "was infinite", "was 0"]
"""Why a change is not a finite number; empty if it is."""


def rms(values: Float[Tensor, "..."]) -> float:
    """Return the root mean square, computed in float64; 0 for an empty tensor."""
    wide = values.double()
    return float(torch.linalg.vector_norm(wide)) / math.sqrt(max(wide.numel(), 1))


def over(part: float, whole: float) -> float:
    """Return `part / whole`, or 0 if both are 0, or infinity if only `whole` is 0."""
    return part / whole if whole else math.inf if part else 0.0


def movement(values: Float[Tensor, "*any"], base: Float[Tensor, "*any"]) -> float:
    """Return RMS(values - base) / RMS(base)."""
    return over(rms(values.double() - base.double()), rms(base))


def moved(values: Tensor, base: Tensor) -> float:
    """Return RMS(values - base) / RMS(base); infinite if only one of them has a NaN or infinity."""
    if not math.isfinite(change := movement(values, base)):
        odd = ~base.isfinite() & ((values == base) | (values.isnan() & base.isnan()))
        change = movement(values.masked_fill(odd, 0), base.masked_fill(odd, 0))
    return change if change == change else math.inf


def oddity(values: Tensor, base: Tensor) -> Oddity:
    """Return why the change from `base` to `values` is not a finite number; empty if it is."""
    if math.isfinite(moved(values, base)):
        return ""
    differ = (values != base) & ~(values.isnan() & base.isnan())
    if bool((differ & values.isnan()).any()):
        return "became NaN"
    if bool((differ & base.isnan()).any()):
        return "was NaN"
    if bool((differ & values.isinf()).any()):
        return "became infinite"
    return "was infinite" if bool((differ & base.isinf()).any()) else "was 0"


def farthest(pairs: Iterable[tuple[Tensor, Tensor]]) -> tuple[float, Oddity]:
    """Return the largest change of several tensors and, if it is not a finite number, why."""
    change, pair = max(((moved(*pair), pair) for pair in pairs), key=lambda each: each[0])
    return change, oddity(*pair)


def percent(share: float) -> str:
    """Format a share in percent with three significant digits: `0.0123 %`, `12.3 %`, `123 %`."""
    if not math.isfinite(share):
        return f"{share} %"
    rounded = float(f"{100 * share:.2e}")  # so that 99.9999 gets as many decimals as 100
    places = 2 if share == 0 else max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{100 * share:.{places}f} %"
