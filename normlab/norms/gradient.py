"""The backward pass of PN, MABN and Unified Norm: it projects a moment out of the gradient."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from normlab.norms.moments import AllReduce, Groups, unchanged
from normlab.norms.square import SquareNorm


@dataclass(frozen=True, kw_only=True)
class Projection:
    """An identity function whose backward pass subtracts a multiple of z from the gradient.

        forward     z
        backward    dz' = factor (dz - m z),  m = fixed + share mean(dz z)

    with means over the tokens of each group of a batch. `fixed` comes from earlier gradients, and
    without `share`, m is just `fixed`.

    The backward pass adds what the norm needs later to `sums` [1, D + 1]: the sum over tokens of
    `dz z` or, without `share`, of `(dz - m z) z`, and the number of tokens. Then it calls `after`.
    """

    fixed: Tensor
    share: Tensor | None = None
    factor: Tensor | None = None
    sums: Float[Tensor, "1 columns"] | None = None
    after: Callable[[], None] | None = None


def projected(
    z: Tensor, by: Projection, groups: Groups, over_group: AllReduce = unchanged
) -> Tensor:
    """Return `z` unchanged. In the backward pass, `by` projects its gradient.

    Means are over the `groups` of the batch, and `over_group` sums over the processes that share
    them.
    """
    reduce = None if over_group is unchanged else over_group
    tensors = by.fixed, by.share, by.factor, by.sums, groups.count
    return _Projected.apply(z, *tensors, groups.axes, reduce, by.after)


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
    """Return `z` unchanged. The backward pass multiplies its gradient by `factor`."""
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


@dataclass(eq=False, repr=False, kw_only=True)
class GradientNorm(SquareNorm):
    """A norm that projects a moment out of its gradient, and keeps the moment in its tables.

    The moment is the mean of `dz z` over tokens. The backward pass adds up its sums and the number
    of tokens in `gradient_sums`. They enter the tables at the end of the update, or immediately
    outside a run.
    """

    exact_gradient: ClassVar[bool] = False
    same_in_training: ClassVar[bool] = False

    gradient_sums: Float[Tensor, "1 columns"] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("gradient_sums", torch.zeros(1, self.dim + 1), persistent=False)

    def commit(self) -> None:
        measured = not self.pending.empty
        super().commit()
        if measured:
            self.commit_gradient()

    @torch.no_grad()
    def commit_gradient(self) -> None:
        """Update the tables with the gradient's moment over all tokens since the last commit."""
        sums = self.gradient_sums
        if self.pool.divided:
            sums = self.pool.over_processes(sums)
        moment, count = sums[:, :-1], sums[:, -1:]
        self.enter_gradient((moment / count.clamp(min=1)).to(self.running_square), count > 0)
        self.gradient_sums.zero_()

    def enter_gradient(self, moment: Float[Tensor, "1 D"], counts: Bool[Tensor, "1 1"]) -> None:
        """Update the tables with a gradient's moment. `counts` is false if it has no tokens."""
        raise NotImplementedError

    def project(
        self, z: Tensor, *, fixed: Tensor, share: Tensor | None, factor: Tensor | None = None
    ) -> Tensor:
        """Return `z` with a moment projected out of its gradient, as `Projection` describes."""
        trains, waits = self.regime == "train", self.pending.begun
        by = Projection(
            fixed=fixed,
            share=share,
            factor=factor,
            sums=self.gradient_sums if trains else None,
            after=self.commit_gradient if trains and not waits else None,
        )
        return projected(z, by, self.gradient_groups, self.over_group)
