"""PowerNorm: division by a running root mean square, with its own backward (Shen et al. 2020)."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.distributed import all_reduce_sum
from normlab.norms.base import EvalStats
from normlab.norms.ghost import Ghost
from normlab.norms.moments import Moments
from normlab.norms.square import Counted, SquareNorm, SquarePadding, scaled

Backward = Literal["code", "paper"]


class GroupScaling(SquareNorm):
    """Divides each of `groups` runs of neighbouring features of a token by its root mean square.

    That is done before the batch's moment is taken (appendix of the paper, in all of its code);
    None leaves it out. Without it the norm is a fixed map in inference.

    Raises:
        ValueError: `groups` does not divide the width.
    """

    def __init__(
        self,
        dim: int,
        *,
        eps: float,
        affine: bool,
        padding: SquarePadding,
        eval_stats: EvalStats,
        sync: bool,
        momentum: float,
        warmup_share: float,
        warmup_steps: int | None,
        groups: int | None,
        ghost: Ghost = None,
    ) -> None:
        super().__init__(
            dim,
            eps=eps,
            affine=affine,
            padding=padding,
            eval_stats=eval_stats,
            sync=sync,
            momentum=momentum,
            warmup_share=warmup_share,
            warmup_steps=warmup_steps,
            ghost=ghost,
        )
        if groups is not None and (groups < 1 or dim % groups):
            raise ValueError(f"norm.groups={groups} does not divide the width {dim}: or null")
        self.groups = groups

    def before(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
        """Return each group of each token over its root mean square."""
        if self.groups is None:
            return x
        grouped = x.unflatten(-1, (self.groups, -1))
        square = grouped.square().mean(-1, keepdim=True)
        return (grouped * (square + self.eps).rsqrt()).flatten(-2)

    def fixed_map(self) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]] | None:
        """Return what inference does, where that is a scale and shift."""
        return super().fixed_map() if self.groups is None else None

    @torch.no_grad()
    def update(self, found: Moments, first: int = 0) -> None:
        """Let a batch's mean square into the running one: all batches alike, and the newest more.

        The first is done in the warm-up only, the second there too, as in the authors' code.
        """
        self.batches += 1
        square = found.var[0].to(self.running_square)
        if self.step == 0 or self.step < self.warmup:
            self.running_square.lerp_(square, 1 / self.batches)
        self.running_square.lerp_(square, self.momentum)


class PowerNormV(GroupScaling):
    """PN-V: each feature over its root mean square over the batch, by exact gradients.

    The authors' repository has no code of it.
    """

    def train_by(self, u: Float[Tensor, "B P D"], counted: Counted) -> Float[Tensor, "B P D"]:
        """Return the tokens over the root mean square of the batch."""
        found = self.moments(u, counted)
        self.observe_batch(found)
        total = (u.square() * counted.forward).sum(self.pooled, keepdim=True)
        if self.synced and self.ghosts is None:
            total = all_reduce_sum(total)
        return self.affine(u * (total / found.count.clamp(min=1) + self.eps).rsqrt())


class PowerNorm(GroupScaling):
    """PN: by the running root mean square after a warm-up, by the batch's before (algorithm 2).

    z = u / sqrt(square + eps) with the square of the batch in the warm-up, else the running one
    before the batch. Backward, with g the gradient of z, nu an average that starts at 0, and means
    over tokens:

        g' = g - backward_momentum nu z        nu += mean(g' z)        du = g' / sqrt(s + eps)

    `backward` says what s is: `code` takes the batch's square at every step, as the authors' code
    does; `paper` what the forward pass divided by.
    """

    exact_gradient: ClassVar[bool] = False
    gradient_moment: Tensor

    def __init__(
        self,
        dim: int,
        *,
        eps: float,
        affine: bool,
        padding: SquarePadding,
        eval_stats: EvalStats,
        sync: bool,
        momentum: float,
        backward_momentum: float,
        backward: Backward,
        warmup_share: float,
        warmup_steps: int | None,
        groups: int | None,
        ghost: Ghost = None,
    ) -> None:
        super().__init__(
            dim,
            eps=eps,
            affine=affine,
            padding=padding,
            eval_stats=eval_stats,
            sync=sync,
            momentum=momentum,
            warmup_share=warmup_share,
            warmup_steps=warmup_steps,
            groups=groups,
            ghost=ghost,
        )
        self.backward_momentum = backward_momentum
        self.by_forward = backward == "paper"
        self.keep("gradient_moment", torch.zeros(1, dim))

    def train_by(self, u: Float[Tensor, "B P D"], counted: Counted) -> Float[Tensor, "B P D"]:
        """Return the tokens over the root mean square of the batch or the running one."""
        found = self.moments(u, counted)
        square = found.var if self.warming_up else self.running_square.to(u)[None].clone()
        self.observe_batch(found)
        scale = (square + self.eps).rsqrt()
        z = scaled(u, scale, scale if self.by_forward else (found.var + self.eps).rsqrt())
        if z.requires_grad:
            self.hook(z, counted)
        return self.affine(z)

    def hook(self, z: Float[Tensor, "B P D"], counted: Counted) -> None:
        """Take the running moment out of the gradient of `z`, and let the new one in."""
        value, training = z.detach(), self.training
        moment = self.gradient_moment.to(z).clone()

        def taken_out(grad: Tensor) -> Tensor:
            left = grad - self.backward_momentum * moment * value
            if training:
                self.observe_gradient(*self.mean(left * value, counted.backward))
            return left

        z.register_hook(taken_out)

    def enter_gradient(self, mean: Float[Tensor, "1 D"], entry: None) -> None:
        """Add a batch's moment."""
        self.gradient_moment.add_(mean.to(self.gradient_moment))
