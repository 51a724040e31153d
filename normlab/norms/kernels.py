"""torch's kernels of batch norm for the formulas of `moments`, on tensors `[B, P, D]`.

A tensor goes to them as the pixels of a picture whose channels lie last, a view of the same memory.
torch's kernel of group norm is not here: with the channels last it takes the variance as the
difference of two sums, which cancels where a mean is large.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Row = Float[Tensor, "1 1 D"]


def batch_norm(
    x: Float[Tensor, "B P D"], weight: Float[Tensor, " D"], bias: Float[Tensor, " D"], eps: float
) -> tuple[Float[Tensor, "B P D"], Row, Row]:
    """Return `x` by its own statistics, and these: mean and variance, without a gradient."""
    pixels = x.unsqueeze(2).permute(0, 3, 1, 2)
    y, mean, inverse = torch.native_batch_norm(pixels, weight, bias, None, None, True, 0.0, eps)
    mean, inverse = mean.detach(), inverse.detach()
    var = (inverse.square().reciprocal() - eps).clamp_(min=0)
    return y.permute(0, 2, 3, 1).squeeze(2), mean[None, None], var[None, None]


def row_squares(x: Float[Tensor, "B P D"], mask: Tensor | None, mean: Tensor) -> Row:
    """Sum the squares about a mean over the tokens that `mask` leaves, `[B, P, 1]`."""
    center = _of_each_feature(mean, x)
    # Masked rows stand at the mean, where they add nothing.
    rows = (x if mask is None else torch.lerp(center, x, mask)).flatten(0, 1)
    middle, var = torch.batch_norm_update_stats(rows, None, None, 0.0)
    return len(rows) * (var + (middle - center).square())[None, None]


def row_pulls(
    grad: Float[Tensor, "B P D"], x: Float[Tensor, "B P D"], mean: Tensor
) -> tuple[Row, Row]:
    """Sum `grad`, and `grad` times the centred `x`, over all tokens."""
    # The gradients of batch norm's weight and bias, with a variance of 1. As pixels of an image
    # whose channels lie last rows take two thirds of the time.
    center = _of_each_feature(mean, x)
    _, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
        grad.flatten(0, 1).T[None, :, :, None],
        x.flatten(0, 1).T[None, :, :, None],
        None,
        None,
        None,
        center,
        torch.ones_like(center),
        True,
        0.0,
        [False, True, True],
    )
    return by_bias[None, None], by_weight[None, None]


def _of_each_feature(table: Tensor, x: Tensor) -> Tensor:
    return table.flatten().expand(x.shape[-1]).contiguous()
