"""The least-squares fit of one tensor to another per feature: `y = gain z + bias`."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class LinearFit(NamedTuple):
    """Gain and bias per feature, and RMS(gain z + bias - y) / RMS(y) over all features."""

    gain: Float[Tensor, " D"]
    bias: Float[Tensor, " D"]
    error: float


def sums(
    z: Float[Tensor, "... D"], y: Float[Tensor, "... D"], mask: Any = None
) -> Float[Tensor, "6 D"]:
    """Return per feature the count and the sums of z, y, z^2, zy and y^2 at real positions.

    `mask` marks them if it has the first two axes of y. Sums of several batches may be added.
    """
    real = mask.bool() if mask is not None and mask.shape == y.shape[:2] else ...
    z, y = (values[real].flatten(0, -2).double() for values in (z, y))
    return torch.stack([x.sum(0) for x in (torch.ones_like(z), z, y, z * z, z * y, y * y)])


def fitted(sums: Float[Tensor, "6 D"], former: Any = 0.0, *, shift: bool = True) -> LinearFit:
    """Return the fit that the sums determine: `gain = cov(z, y) / var(z)`.

    A constant feature keeps its `former` gain. Without `shift` the bias is 0.
    """
    _, z, y, zz, zy, yy = sums / sums[0]
    z, y = shift * z, shift * y
    var, cov = zz - z * z, zy - z * y
    gain = torch.where(var > 1e-12 * zz, cov / var, former)
    rest = (yy - y * y - 2 * gain * cov + gain * gain * var).sum().clamp(min=0)
    return LinearFit(gain, y - gain * z, float((rest / yy.sum().clamp(min=1e-300)).sqrt()))


def mean_and_variance(sums: Float[Tensor, "6 D"]) -> tuple[Tensor, Tensor]:
    """Return mean and unbiased variance of z."""
    count, z, _, zz, *_ = sums
    return z / count, (zz - z * z / count) / (count - 1).clamp(min=1)
