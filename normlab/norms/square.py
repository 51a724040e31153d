"""What norms without a mean share: second moments over a batch, and of the gradient."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from normlab.distributed import sum_over_ranks
from normlab.norms.base import Axis, EvalStats, Stream, uncompiled
from normlab.norms.batch import include
from normlab.norms.ghost import Ghost, GhostBatches
from normlab.norms.moments import Moments, Weights, here, merge, widen
from normlab.norms.stream import real_tokens
from normlab.norms.warmup import WarmupNorm

SquarePadding = Literal["exclude", "include", "forward"]


class Counted(NamedTuple):
    """Which positions enter the forward and the backward moment: 1 or 0, `[B, P, 1]`.

    `mask` is what the output is multiplied by; None keeps what stands at padding.
    """

    forward: Tensor
    backward: Tensor
    mask: Tensor | None


class SquareNorm(WarmupNorm):
    """A norm that divides by a root mean square over the batch, `running_square` in inference.

    `padding` says which tokens count: `exclude` real ones, `include` all, `forward` real ones in
    the forward pass and all in the moment of the gradient, as published code has it.

    A subclass trains by `self.train_by`, and takes a moment of the gradient by
    `self.observe_gradient`. `ghost` makes a batch of every so many sequences (see `GhostBatches`).
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position"})
    running_square: Tensor

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
        ghost: Ghost,
    ) -> None:
        super().__init__(
            dim, eps=eps, affine=affine, eval_stats=eval_stats, sync=sync, momentum=momentum
        )
        self.warm_up(warmup_share, warmup_steps)
        self.ghosts = None if ghost is None else GhostBatches(ghost, self.pools)
        self.held_gradients: list[tuple[Tensor, Tensor]] = []
        self.padding: SquarePadding = padding
        self.count = _COUNT[padding]
        self.keep("running_square", torch.ones(1, dim))

    @uncompiled
    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` over the root mean square of the batch, or the running one."""
        (wide,) = widen(x)
        u = self.before(wide)
        if not self.by_batch:
            return self.affine(self.by_running(u)).to(x.dtype)
        counted = self.count(stream, wide)
        if counted.mask is not None:
            u = u * counted.mask
        if self.ghosts is None:
            y = self.train_by(u, counted)
        else:
            cut = self.ghosts.cut
            groups = Counted(cut(counted.forward), cut(counted.backward), None)
            y = self.ghosts.join(self.train_by(cut(u), groups), like=u)
        return (y if counted.mask is None else y * counted.mask).to(x.dtype)

    def before(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
        """Return what the moment is taken of."""
        return x

    def train_by(self, u: Float[Tensor, "B P D"], counted: Counted) -> Float[Tensor, "B P D"]:
        """Return the output of training, and let the batch into the statistics."""
        raise NotImplementedError

    def affine(
        self, z: Float[Tensor, "B P D"], weight: Tensor | None = None
    ) -> Float[Tensor, "B P D"]:
        """Return `weight * z + bias`."""
        return torch.addcmul(self.bias.to(z), z, (self.weight if weight is None else weight).to(z))

    def by_running(self, u: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
        """Return the normalized tokens of inference."""
        return u * (self.running_square.to(u) + self.eps).rsqrt()

    def fixed_map(self) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]] | None:
        """Return what inference does, where that is a scale and shift."""
        if self.by_batch:
            return None
        scale = (self.running_square[0].double() + self.eps).rsqrt() * self.weight.detach().double()
        return scale, self.bias.detach().double()

    def running_moments(self) -> tuple[Tensor, Tensor]:
        """Return a mean of 0 and the running mean square as variance, `[1, cols]`."""
        return torch.zeros_like(self.running_square), self.running_square

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        """Move the running mean square by a share; there is no mean."""
        self.running_square[rows].lerp_(var, share)

    @property
    def all_reduce(self) -> Callable[[Tensor], Tensor]:
        """The sum over processes, where they go in step."""
        return sum_over_ranks if self.synced else here

    @property
    def pooled(self) -> tuple[int, ...]:
        """The dimensions that a batch lies along: one for each ghost batch."""
        return (0, 1) if self.ghosts is None else (1,)

    @torch.no_grad()
    def moments(self, u: Float[Tensor, "B P D"], counted: Counted) -> Moments:
        """Return the mean square of the tokens that count, as moments with mean 0."""
        count, square = self.mean(u.square(), counted.forward)
        return Moments(torch.zeros_like(square), square, count, count)

    def observe_batch(self, found: Moments) -> None:
        """Let a batch's moments, or those of its ghost batches, into the statistics or a tally."""
        self.observe(found if self.ghosts is None else merge([found], self.all_reduce))

    @torch.no_grad()
    def mean(self, values: Float[Tensor, "B P D"], counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return how many tokens count, and their mean of values, `[1 or G, 1, 1 or D]`."""
        sums = torch.cat([counts.expand((*values.shape[:2], 1)), values * counts], -1)
        total = sums.sum(self.pooled, keepdim=True)
        if self.ghosts is None:
            total = self.all_reduce(total)
        count = total[..., :1]
        return count, total[..., 1:] / count.clamp(min=1)

    @torch.no_grad()
    def observe_gradient(self, count: Tensor, mean: Tensor, entry: Any = None) -> None:
        """Let a training batch's moment of the gradient, `[1 or G, 1, D]`, into the statistics."""
        if self.ghosts is not None:
            count, mean = _pooled([(count, mean)], self.all_reduce)
        if self.held is None:
            self.enter_gradient(mean[0], entry)
        else:
            self.held_gradients.append((count, mean))

    def enter_gradient(self, mean: Float[Tensor, "1 D"], entry: Any) -> None:
        """Let a moment of the gradient into the statistics."""
        raise NotImplementedError

    def last_entry(self) -> Any:
        """Return how the batch that entered last did so, for its moment of the gradient."""
        return None

    def commit(self) -> None:
        """Let the moments that were kept into the statistics, as those of one batch."""
        super().commit()
        if self.held_gradients:
            _, mean = _pooled(self.held_gradients, here)
            self.held_gradients = []
            self.enter_gradient(mean[0], self.last_entry())


def _pooled(
    means: Sequence[tuple[Tensor, Tensor]], all_reduce: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return count and mean of all batches together, whose own are `[G, 1, 1]`, `[G, 1, D]`."""
    sums = torch.cat([torch.cat([count, count * mean], -1) for count, mean in means])
    total = all_reduce(sums.sum(0, keepdim=True))
    count = total[..., :1]
    return count, total[..., 1:] / count.clamp(min=1)


def _exclude(stream: Stream, x: Tensor) -> Counted:
    real = _sums(real_tokens(stream, x), x)
    return Counted(real, real, None if stream.dense else real)


def _include(stream: Stream, x: Tensor) -> Counted:
    every = _sums(include(stream, x), x)
    return Counted(every, every, None)


def _forward(stream: Stream, x: Tensor) -> Counted:
    return Counted(_sums(real_tokens(stream, x), x), _sums(include(stream, x), x), None)


def _sums(weights: Weights, x: Tensor) -> Tensor:
    return weights.sums.to(x)


_COUNT: dict[SquarePadding, Callable[[Stream, Tensor], Counted]] = {
    "exclude": _exclude,
    "include": _include,
    "forward": _forward,
}


class _Scale(torch.autograd.Function):
    """`u * scale`, whose gradient is multiplied by another scale."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, scale: Tensor, backward_scale: Tensor) -> Tensor:
        ctx.save_for_backward(backward_scale)
        return u * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (backward_scale,) = ctx.saved_tensors
        return grad * backward_scale, None, None


def scaled(u: Tensor, scale: Tensor, backward_scale: Tensor) -> Tensor:
    """Return `u * scale`; the gradient of `u` is that of the output times `backward_scale`.

    The scales are constants of the backward pass.
    """
    return _Scale.apply(u, scale, backward_scale)
