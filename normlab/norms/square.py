"""Norms that divide by a root mean square of the batch and subtract no mean; PN-V."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.norms.base import require_divisor
from normlab.norms.gradient import Projection, projected
from normlab.norms.moments import Axis, Moments, Values
from normlab.norms.ramp import Clock, Ramp
from normlab.norms.rms import RMSNorm
from normlab.norms.running import RunningNorm

SquarePadding = Literal["exclude", "include", "forward"]


@dataclass(eq=False, repr=False, kw_only=True)
class SquareNorm(RunningNorm):
    """A norm that divides by the batch's root mean square or, at inference, by the running one.

    The mean is 0 and `var` the mean square. With `groups`, each group of a token's features is
    first divided by its own root mean square (as in the appendix of the PowerNorm paper and all of
    its code), so inference is not affine. `padding` chooses which tokens count: `exclude` only real
    tokens, `include` all tokens, and `forward` real tokens in the forward pass but all in the
    gradient moment, as in published code.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position"})
    once_an_update: ClassVar[bool] = True
    fewest: ClassVar[int] = 1

    padding: SquarePadding
    groups: int | None = field(init=False, default=None)
    warmup_share: float
    warmup_steps: int | None
    running_square: Tensor = field(init=False)
    zero: Tensor = field(init=False)  # the mean
    counted: Values = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisor(self.groups or 1, self.dim)
        width = self.dim // (self.groups or 1)
        self.of_group = RMSNorm(width, affine=False, eps=self.eps).normalized
        self.ramps = (Ramp("warmup", self.warmup_share, self.warmup_steps),)
        self.averages = True  # running square: over all batches so far
        self.register_buffer("running_square", torch.ones(1, self.dim))
        self.register_buffer("zero", torch.zeros(1, self.dim), persistent=False)

    def prepare(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
        """Scale each feature group of each token to a mean square of 1."""
        if self.groups is None:
            return x
        return self.of_group(x.unflatten(-1, (self.groups, -1))).flatten(-2)

    def formula(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return x * (var + self.eps).rsqrt()

    def moments(self, values: Values) -> Moments:
        self.counted = values._replace(x=values.count)  # for the moment of the gradient
        with torch.set_grad_enabled(self.exact_gradient and torch.is_grad_enabled()):
            squares = values.clear(values.x.square())
            square, count = values.mean(squares, values.count, by=self.pool.over_group)
        return Moments(self.zero.to(square).expand_as(square), square, count, count)

    def begin_step(self, clock: Clock) -> None:
        super().begin_step(clock)
        self.averages = not clock.step or clock.step < self.last_steps(clock.total)["warmup"]

    def entering(self, count: Tensor, square: Tensor) -> Float[Tensor, "1 D"]:
        """Return the batch's mean square, or the running one if the batch has no tokens."""
        return torch.where(count > 0, square.to(self.running_square), self.running_square)

    def update(self, found: Moments, first: int = 0) -> None:
        """Move the running mean square towards a batch's.

        In the warm-up it is first set to the average over all batches, as in the authors' code.
        """
        self.updates.add_(1)
        square = self.entering(found.count, found.var)
        if self.averages:
            self.running_square.lerp_(square, self.updates.to(square).reciprocal())
        self.running_square.lerp_(square, self.momentum)

    def running_moments(self) -> tuple[Tensor, Tensor]:
        return self.zero, self.running_square

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        self.running_square[rows].lerp_(var, share)


@dataclass(eq=False, repr=False, kw_only=True)
class GradientNorm(SquareNorm):
    """A norm that projects a moment out of its gradient, and remembers it.

    The backward pass adds up the moment's sums over tokens, and their number, which enter the
    tables at the end of the update; outside of a run, at once.
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
        """Enter the gradient's moment, of all backward passes since the last time."""
        sums = self.gradient_sums
        if self.pool.divided:
            sums = self.pool.over_processes(sums)
        moment, count = sums[:, :-1], sums[:, -1:]
        self.enter_gradient((moment / count.clamp(min=1)).to(self.running_square), count > 0)
        self.gradient_sums.zero_()

    def enter_gradient(self, moment: Float[Tensor, "1 D"], counts: Bool[Tensor, "1 1"]) -> None:
        """Enter the last batch's gradient moment into the tables where it `counts`."""
        raise NotImplementedError

    def project(
        self, z: Tensor, *, fixed: Tensor, share: Tensor | None, factor: Tensor | None = None
    ) -> Tensor:
        """Return `z`, with a moment projected out of its gradient (see `Projection`)."""
        trains, waits = self.regime == "train", self.pending.begun
        by = Projection(
            fixed=fixed,
            share=share,
            factor=factor,
            sums=self.gradient_sums if trains else None,
            after=self.commit_gradient if trains and not waits else None,
        )
        return projected(z, by, self.counted, self.pool.over_group)


@dataclass(eq=False, repr=False, kw_only=True)
class PowerNormV(SquareNorm):
    """PN-V (Shen et al. 2020): divides by the batch's root mean square, with exact gradients.

    The authors published no code for it. With `padding=forward` it is the same as with `exclude`.
    """

    groups: int | None
