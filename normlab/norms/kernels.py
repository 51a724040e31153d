"""Hand-written backward passes of batch norm and RMS norm, in fewer passes over memory.

Plain autograd takes two to four times as long on a CPU. `tests/norms/test_pools.py` holds each
kernel against its formula.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from normlab.norms.pool import (
    AllReduce,
    Counted,
    Moments,
    Pool,
    bits,
    here,
    select,
    select_bits,
    widen,
)


def standardize(
    x: Float[Tensor, "B P D"],
    counted: Counted,
    weight: Float[Tensor, " D"],
    bias: Float[Tensor, " D"],
    *,
    pool: Pool,
    all_reduce: AllReduce = here,
    eps: float,
) -> tuple[Float[Tensor, "B P D"], Moments]:
    """Return `weight (x - mean) / sqrt(var + eps) + bias`, 0 at tokens that do not count.

    The output has `x`'s dtype; the moments, of the groups of `pool`, carry no gradient.
    """
    wide, weight, bias = widen(x, weight, bias)
    if pool.groups > 1:
        weight, bias = (table.unflatten(0, (pool.groups, -1)) for table in (weight, bias))
    compiling = torch.compiler.is_compiling()
    own = counted.dense and pool.plain and pool.dims == (1,) and all_reduce is here
    if own and not compiling:
        y, moments = _batch_norm(wide, weight, bias, eps)
        return y.to(x.dtype), moments
    groups, mask, filled = pool.grouped(wide, counted)
    if compiling:  # torch derives and fuses a backward by itself
        chosen = select(groups, mask)
        moments = pool.moments(chosen, mask, filled, all_reduce=all_reduce)
        y, _ = _affine(chosen, weight, bias, moments.rows(groups.shape[2]), eps)
        y = pool.join(select(y, mask), like=wide)
        moments = Moments(*(table.detach() for table in moments))
    else:
        with torch.no_grad():
            kept = None if mask is None else bits(mask, wide) if x.is_cpu else mask
            chosen = _select(groups, kept)
            moments = _moments(chosen, mask, filled, pool, all_reduce)
        y = _Standardize.apply(wide, chosen, kept, weight, bias, moments, pool, all_reduce, eps)
    return y.to(x.dtype), moments


def inverse_deviation(moments: Moments, eps: float) -> Tensor:
    """Return what centered values are multiplied by: 0 for one value, which has no spread."""
    return (moments.var + eps).rsqrt() * (moments.count > 1)


def _affine(
    x: Tensor, weight: Tensor, bias: Tensor, moments: Moments, eps: float
) -> tuple[Tensor, Tensor]:
    scale = inverse_deviation(moments, eps)
    slope = scale * weight
    return torch.addcmul(torch.addcmul(bias, moments.mean, slope, value=-1), x, slope), scale


class _Standardize(torch.autograd.Function):
    """Batch norm with its backward pass (Ioffe and Szegedy 2015, section 3).

    With g the gradient of the output, h = g weight, and z the standardized input,

        dx = (h - sum(h) / n - z sum(h z) / m) / sqrt(var + eps)

    where n and m are the counts of the mean and of the variance. `weight` and `bias` need both sums
    anyway; over several processes they are all that is sent. `chosen` is the input at counted
    tokens, else 0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        chosen: Tensor,
        mask: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        moments: Moments,
        pool: Pool,
        all_reduce: AllReduce,
        eps: float,
    ) -> Tensor:
        found = moments.rows(chosen.shape[2])
        y, scale = _affine(chosen, weight, bias, found, eps)
        counts = torch.stack([found.count, found.var_count]).clamp_(min=1)
        ctx.save_for_backward(chosen, mask, weight, scale, found.mean, counts)
        ctx.pool, ctx.all_reduce = pool, all_reduce
        return pool.join(_select_(y, mask), like=x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mask, weight, scale, mean, counts = ctx.saved_tensors
        like, grad = grad, ctx.pool.cut(grad)
        chosen = _select(grad, mask)
        by_bias, by_weight = _pulls(chosen, x, mean)
        by_weight = by_weight * scale
        pulls = [ctx.pool.over_features(table * weight) for table in (by_bias, by_weight)]
        pulls = ctx.all_reduce(torch.stack(pulls))[..., : x.shape[2], :]
        mean_pull, var_pull = pulls * scale / counts
        slope = scale * var_pull
        room = None if mask is None else chosen
        dx = torch.addcmul(mean * slope - mean_pull, x, slope, value=-1, out=room)
        dx = _select_(dx.addcmul_(grad, scale * weight), mask)
        dweight, dbias = (table.sum_to_size(weight.shape) for table in (by_weight, by_bias))
        return ctx.pool.join(dx, like=like), None, None, dweight, dbias, None, None, None, None


def _moments(
    x: Tensor, mask: Tensor | None, filled: Tensor | None, pool: Pool, all_reduce: AllReduce
) -> Moments:
    def squares(x: Tensor, center: Tensor) -> Tensor:
        if not _one_matrix(x):
            return select((x - center).square_(), mask).sum(1, keepdim=True)
        row = _row(center, x)
        # Masked rows are put at the mean, where they add nothing.
        rows = (x if mask is None else torch.lerp(row, x, mask.to(x))).reshape(-1, x.shape[3])
        middle, var = torch.batch_norm_update_stats(rows, None, None, 0.0)
        return (len(rows) * (var + (middle - row).square())).view(1, 1, 1, -1)

    return pool.moments(x, mask, filled, all_reduce=all_reduce, squares=squares)


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


def _select(x: Tensor, kept: Tensor | None) -> Tensor:
    """Return `x` where a mask, on a CPU its `bits`, keeps it, else 0."""
    if kept is None:
        return x
    return torch.where(kept, x, 0.0) if kept.dtype == torch.bool else select_bits(x, kept)


def _select_(x: Tensor, kept: Tensor | None) -> Tensor:
    if kept is None:
        return x
    if kept.dtype == torch.bool:
        return x.masked_fill_(~kept, 0.0)
    x.view(kept.dtype).bitwise_and_(kept)
    return x


def _one_matrix(x: Tensor) -> bool:
    """Whether the sums are over all rows of a matrix, for which torch has kernels on a CPU."""
    return x.is_cpu and x.shape[0] == 1 and x.shape[2] == 1


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
        dx, dweight, _ = torch.ops.aten.native_layer_norm_backward(
            grad.contiguous(),
            x,
            [x.shape[-1]],
            torch.zeros_like(inverse),
            inverse,
            weight,
            None,
            [True, True, False],
        )
        pull = (grad * weight).mean(-1, keepdim=True)
        return dx.add_(inverse * pull), dweight, None
