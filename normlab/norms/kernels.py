"""Hand-written backward passes of batch norm and RMS norm, in fewer passes over memory.

Plain autograd takes two to four times as long on a CPU. `tests/norms/test_pools.py` holds each
kernel against its formula.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from normlab.norms.pool import AllReduce, Counted, Groups, Moments, Pool, here, select, select_


def standardize(
    x: Float[Tensor, "B P D"],
    weight: Float[Tensor, " D"],
    bias: Float[Tensor, " D"],
    counted: Counted,
    pool: Pool,
    eps: float,
    *,
    all_reduce: AllReduce = here,
    filled: bool = False,
) -> tuple[Float[Tensor, "B P D"], Moments]:
    """Return `weight (x - mean) / sqrt(var + eps) + bias`, anything at tokens that do not count.

    All are float32 or float64. The moments, of the groups of `pool`, carry no gradient.
    """
    if pool.groups > 1:
        weight, bias = (table.unflatten(0, (pool.groups, -1)) for table in (weight, bias))
    if torch.compiler.is_compiling():  # torch then derives and fuses a backward by itself
        y, moments = pool.normalize(
            x,
            counted,
            lambda c, m: torch.addcmul(bias, c, weight * inverse_deviation(m, eps)),
            all_reduce=all_reduce,
            filled=filled,
        )
        return y, Moments(*(table.detach() for table in moments))
    own = pool.plain and pool.dims == (1,) and all_reduce is here
    if own and counted.kept is None and x.numel():
        return _batch_norm(x, weight, bias, eps)
    with torch.no_grad():
        groups = pool.cut(x, counted, filled=filled)
        moments = _moments(groups, pool, all_reduce)
    y = _Standardize.apply(x, weight, bias, groups, moments, pool, all_reduce, eps)
    return y, moments


def inverse_deviation(moments: Moments, eps: float) -> Tensor:
    """Return what centered values are multiplied by: 0 for one value, which has no spread."""
    return (moments.var + eps).rsqrt() * (moments.count > 1)


class _Standardize(torch.autograd.Function):
    """Batch norm with its backward pass (Ioffe and Szegedy 2015, section 3).

    With g the gradient of the output, h = g weight, and z the standardized input,

        dx = (h - sum(h) / n - z sum(h z) / m) / sqrt(var + eps)

    where n and m are the counts of the mean and of the variance. `weight` and `bias` need both sums
    anyway; over several processes they are all that is sent.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        groups: Groups,
        moments: Moments,
        pool: Pool,
        all_reduce: AllReduce,
        eps: float,
    ) -> Tensor:
        chosen, kept, *_ = groups
        found = moments.rows(chosen.shape[2])
        scale = inverse_deviation(found, eps)
        slope = scale * weight
        y = torch.addcmul(torch.addcmul(bias, found.mean, slope, value=-1), chosen, slope)
        counts = torch.stack([found.count, found.var_count]).clamp_(min=1)
        ctx.save_for_backward(chosen, kept, weight, scale, found.mean, counts)
        ctx.pool, ctx.all_reduce = pool, all_reduce
        return pool.join(y, like=x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, kept, weight, scale, mean, counts = ctx.saved_tensors
        g = select(ctx.pool.reshape(grad), kept)
        sums = torch.stack(_pulls(g, x, mean))
        sums[1].mul_(scale)
        pulls = sums * weight
        if "feature" in ctx.pool.axes:
            pulls = pulls.sum(4, keepdim=True)
        mean_pull, var_pull = ctx.all_reduce(pulls)[..., : x.shape[2], :] * scale / counts
        slope = scale * var_pull
        dx = torch.addcmul(torch.addcmul(-mean_pull, mean, slope), x, slope, value=-1)
        dx = select_(dx.addcmul_(g, scale * weight), kept)
        dbias, dweight = sums.sum((1, 2) if ctx.pool.groups > 1 else (1, 2, 3))
        return ctx.pool.join(dx, like=grad), dweight, dbias, *[None] * 5


def _moments(groups: Groups, pool: Pool, all_reduce: AllReduce) -> Moments:
    x, kept, *counts = groups
    mean, count, var_count = pool.mean(x, *counts, by=all_reduce)
    center = mean[:, :, : x.shape[2]]
    if _one_matrix(x) and kept is None:
        row = _row(center, x)
        middle, var = torch.batch_norm_update_stats(x.view(-1, x.shape[3]), None, None, 0.0)
        squares = (x.shape[1] * (var + (middle - row).square())).view(1, 1, 1, -1)
        if "feature" in pool.axes:
            squares = squares.sum(3, keepdim=True)
    else:
        squares = select_((x - center).square_(), kept).sum(pool.dims, keepdim=True)
    return Moments(mean, all_reduce(squares) / var_count.clamp(min=1), count, var_count)


def _pulls(grad: Tensor, x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Sum `grad`, and `grad` times the centered `x`, for each feature."""
    if not _one_matrix(x):
        centered = (x - mean).mul_(grad)
        return grad.sum(1, keepdim=True), centered.sum(1, keepdim=True)
    # The gradients of batch norm's weight and bias, with a variance of 1. As pixels of an image
    # whose channels lie last, rows take two thirds of the time.
    row = _row(mean, x)
    _, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
        *(table.reshape(-1, x.shape[3]).T[None, :, :, None] for table in (grad, x)),
        *(None, None, None, row, torch.ones_like(row), True, 0.0, [False, True, True]),
    )
    return by_bias.view(1, 1, 1, -1), by_weight.view(1, 1, 1, -1)


def _one_matrix(x: Tensor) -> bool:
    """Whether the sums are over all rows of a matrix, for which torch has kernels on a CPU."""
    return x.is_cpu and x.shape[0] == 1 and x.shape[2] == 1 and x.shape[1] > 0


def _row(table: Tensor, x: Tensor) -> Tensor:
    return table.flatten().expand(x.shape[3]).contiguous()


def _batch_norm(
    x: Float[Tensor, "B P D"], weight: Tensor, bias: Tensor, eps: float
) -> tuple[Float[Tensor, "B P D"], Moments]:
    """Return torch's own batch norm of `x` as the pixels of an image, a view of the same memory."""
    pixels = x.unsqueeze(2).permute(0, 3, 1, 2)
    y, mean, inverse = torch.native_batch_norm(pixels, weight, bias, None, None, True, 0.0, eps)
    mean, inverse = (table.detach().view(1, 1, 1, -1) for table in (mean, inverse))
    var = (inverse.square().reciprocal() - eps).clamp_(min=0)
    count = torch.full_like(mean[..., :1], x.shape[0] * x.shape[1])
    return y.permute(0, 2, 3, 1).squeeze(2), Moments(mean, var, count, count)


class RootMeanSquare(torch.autograd.Function):
    """`weight x / sqrt(mean(x^2) + eps)` over the last axis, by torch's kernels of layer norm.

    torch makes RMS norm of many small operators on a CPU. Layer norm's backward kernel, given a
    mean of 0, is RMS norm's but for the gradient's mean over features, which is put back.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()
        inverse = (square / x.shape[-1] + eps).rsqrt()
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, inverse = ctx.saved_tensors
        zero, size = torch.zeros_like(inverse), [x.shape[-1]]
        dx, dweight, _ = torch.ops.aten.native_layer_norm_backward(
            grad.contiguous(), x, size, zero, inverse, weight, None, [True, True, False]
        )
        pull = (grad * weight).mean(-1, keepdim=True)
        return dx.add_(inverse * pull), dweight, None
