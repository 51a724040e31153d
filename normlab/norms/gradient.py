"""Gradients that are not those of the forward pass: a moment projected out of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from normlab.norms.moments import AllReduce, Values, unchanged


@dataclass(frozen=True, kw_only=True)
class Projection:
    """What the backward pass of PowerNorm, MABN and Unified Norm subtracts: `dz - m z`.

    m is a moment of earlier gradients, `fixed`, or of this one, too, with means over the tokens of
    each group of a batch:

        m = fixed + share mean(dz z)

    `mean(dz z)`, or with no `share` what is left of it, is also added to `sums` `[1, D + 1]`: the
    sums over tokens, and the number of tokens. Last, the gradient is multiplied by `factor`.
    `after` is called when all that is done.
    """

    fixed: Tensor
    share: Tensor | None = None
    factor: Tensor | None = None
    sums: Float[Tensor, "1 columns"] | None = None
    after: Callable[[], None] | None = None


def projected(
    z: Tensor, by: Projection, values: Values, over_group: AllReduce = unchanged
) -> Tensor:
    """Return `z`, whose gradient is projected in the backward pass.

    `values` has the groups of the batch, which `over_group` sums over processes.
    """
    reduce = None if over_group is unchanged else over_group
    tensors = by.fixed, by.share, by.factor, by.sums, values.var_count
    return _Projected.apply(z, *tensors, values.axes, reduce, by.after)


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        fixed: Tensor,
        share: Tensor | None,
        factor: Tensor | None,
        sums: Tensor | None,
        count: Tensor,
        axes: tuple[int, ...],
        reduce: Callable[[Tensor], Tensor] | None,
        after: Callable[[], None] | None,
    ) -> Tensor:
        ctx.save_for_backward(z, fixed, share, factor, count)
        ctx.sums, ctx.axes, ctx.reduce, ctx.after = sums, axes, reduce, after
        return z.view_as(z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, fixed, share, factor, count = ctx.saved_tensors
        if share is None:
            grad = torch.addcmul(grad, fixed, z, value=-1)
        if share is not None or ctx.sums is not None:
            sums = (grad * z).sum(ctx.axes, keepdim=True)
            both = torch.cat([sums, count.expand(*sums.shape[:-1], 1)], -1)
            both = both if ctx.reduce is None else ctx.reduce(both)
            if share is not None:
                mean = both[..., :-1] / both[..., -1:].clamp(min=1)
                grad = torch.addcmul(grad, torch.addcmul(fixed, share, mean), z, value=-1)
            if ctx.sums is not None:
                groups = both.flatten(0, -2)
                ctx.sums.add_(groups if len(groups) == 1 else groups.sum(0, keepdim=True))
        if ctx.after is not None:
            ctx.after()
        grad = grad if factor is None else grad * factor
        return grad, None, None, None, None, None, None, None, None


def scaled(z: Tensor, factor: Tensor) -> Tensor:
    """Return `z`, whose gradient is multiplied by `factor`."""
    return _Scaled.apply(z, factor)


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return z.view_as(z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return grad * factor, None
