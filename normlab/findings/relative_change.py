"""The change of a tensor relative to its size: RMS(new - old) / RMS(old)."""

import math
from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

NonFinite = Literal["", "became NaN", "was NaN", "became infinite", "was infinite", "was 0"]
"""Why a change is not a finite number, or "" if it is finite."""


def rms(values: Float[Tensor, "..."]) -> float:
    """Return the root mean square, computed in float64, or 0 for an empty tensor."""
    in_float64 = values.double()
    return float(torch.linalg.vector_norm(in_float64)) / math.sqrt(max(in_float64.numel(), 1))


def ratio(part: float, whole: float) -> float:
    """Return `part / whole`, or 0 if both are 0, or infinity if only `whole` is 0."""
    return part / whole if whole else math.inf if part else 0.0


def relative_change(values: Float[Tensor, "*any"], base: Float[Tensor, "*any"]) -> float:
    """Return RMS(values - base) / RMS(base).

    Entries that are NaN in both tensors, or the same infinity in both, count as 0. The change is
    infinite if an entry is NaN or infinite in only one of them.
    """
    change = _relative_change(values, base)
    if not math.isfinite(change):
        same = ~base.isfinite() & ((values == base) | (values.isnan() & base.isnan()))
        change = _relative_change(values.masked_fill(same, 0), base.masked_fill(same, 0))
    return change if change == change else math.inf


def _relative_change(values: Tensor, base: Tensor) -> float:
    return ratio(rms(values.double() - base.double()), rms(base))


def why_not_finite(values: Tensor, base: Tensor) -> NonFinite:
    """Return why the change from `base` to `values` is not a finite number, or "" if it is."""
    if math.isfinite(relative_change(values, base)):
        return ""
    differ = (values != base) & ~(values.isnan() & base.isnan())
    if bool((differ & values.isnan()).any()):
        return "became NaN"
    if bool((differ & base.isnan()).any()):
        return "was NaN"
    if bool((differ & values.isinf()).any()):
        return "became infinite"
    return "was infinite" if bool((differ & base.isinf()).any()) else "was 0"


def largest_change(pairs: Iterable[tuple[Tensor, Tensor]]) -> tuple[float, NonFinite]:
    """Return the largest of the changes of several tensors, and why it is not finite, or ""."""
    changes = ((relative_change(*pair), pair) for pair in pairs)
    change, pair = max(changes, key=lambda item: item[0])
    return change, why_not_finite(*pair)


def percent(share: float) -> str:
    """Format a share in percent with three significant digits, such as `0.0123 %` or `123 %`."""
    if not math.isfinite(share):
        return f"{share} %"
    rounded = float(f"{100 * share:.2e}")  # so that 99.9999, shown as 100, gets no decimals
    places = 2 if share == 0 else max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{100 * share:.{places}f} %"
