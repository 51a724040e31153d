"""Fits one tensor to another by least squares, per feature: `y = gain z + bias`."""

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class LinearFit(NamedTuple):
    """A fitted gain and bias per feature, and RMS(gain z + bias - y) / RMS(y) over all features."""

    gain: Float[Tensor, " D"]
    bias: Float[Tensor, " D"]
    error: float


@dataclass(frozen=True)
class FitSums:
    """The number of positions, and the sums of z, y, z^2, zy and y^2 over them, per feature."""

    count: Float[Tensor, " D"]
    z: Float[Tensor, " D"]
    y: Float[Tensor, " D"]
    zz: Float[Tensor, " D"]
    zy: Float[Tensor, " D"]
    yy: Float[Tensor, " D"]

    def __add__(self, other: "FitSums") -> "FitSums":
        names = [field.name for field in fields(self)]
        return FitSums(**{name: getattr(self, name) + getattr(other, name) for name in names})


def sums(
    z: Float[Tensor, "... D"], y: Float[Tensor, "... D"], mask: Tensor | None = None
) -> FitSums:
    """Return the sums over the positions that `mask` marks as real.

    All positions are real without a mask, or if its shape differs from that of y's first two axes.
    """
    real = mask.bool() if mask is not None and mask.shape == y.shape[:2] else ...
    z, y = (values[real].flatten(0, -2).double() for values in (z, y))
    return FitSums(*(x.sum(0) for x in (torch.ones_like(z), z, y, z * z, z * y, y * y)))


def fitted(total: FitSums, former: Tensor | float = 0.0, *, shift: bool = True) -> LinearFit:
    """Return the least-squares fit, given the sums: `gain = cov(z, y) / var(z)`.

    The gain of a constant feature is `former`. Without `shift`, the bias is 0.
    """
    n = total.count
    z, y = shift * total.z / n, shift * total.y / n
    zz, zy, yy = total.zz / n, total.zy / n, total.yy / n
    var, cov = zz - z * z, zy - z * y
    gain = torch.where(var > 1e-12 * zz, cov / var, former)
    rest = (yy - y * y - 2 * gain * cov + gain * gain * var).sum().clamp(min=0)
    return LinearFit(gain, y - gain * z, float((rest / yy.sum().clamp(min=1e-300)).sqrt()))


def mean_and_variance(total: FitSums) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """Return the mean and the unbiased variance of z."""
    var = (total.zz - total.z * total.z / total.count) / (total.count - 1).clamp(min=1)
    return total.z / total.count, var
