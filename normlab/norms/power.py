"""PowerNorm: divides by a running root mean square; custom backward pass (Shen et al. 2020)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import RunningNorm, check_groups, uncompiled
from normlab.norms.pool import Axis, Grouped, Groups, Moments, select

SquarePadding = Literal["exclude", "include", "forward"]


@dataclass(eq=False, repr=False, kw_only=True)
class SquareNorm(RunningNorm):
    """A norm that divides by a root mean square, the batch's or, in inference, the running one.

    With `groups`, each group of a token's features is first divided by its own root mean square
    (as in the appendix of the PowerNorm paper and all of its code), so inference is not affine.
    `padding` chooses which tokens count: `exclude` only real tokens, `include` all tokens, and
    `forward` real tokens in the forward pass but all in the gradient moment, as in published code.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position"})
    phases: ClassVar[tuple[str, ...]] = ("warmup",)
    once_an_update: ClassVar[bool] = True
    fewest: ClassVar[int] = 1

    padding: SquarePadding
    groups: int | None = field(init=False, default=None)
    warmup_share: float
    warmup_steps: int | None
    running_square: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_groups(self.groups, self.dim)
        self.register_buffer("running_square", torch.ones(1, self.dim))

    forward = uncompiled(RunningNorm.forward)

    def scaled(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        """Scale each feature group of each token to a mean square of 1."""
        if self.groups is None:
            return x
        grouped = x.unflatten(-1, (self.groups, -1))
        square = grouped.square().mean(-1, keepdim=True)
        return (grouped * (square + self.eps).rsqrt()).flatten(-2)

    def formula(self, u: Grouped, m: Moments, count: Tensor) -> Grouped:
        """Normalize `u` by the mean square of each group, `m.var`, and apply gain and shift.

        `count` is the number of tokens to average a gradient moment over.
        """
        raise NotImplementedError

    def normalize(self, groups: Groups) -> tuple[Grouped, Moments]:
        u, kept = self.scaled(groups.x), groups.kept
        with torch.set_grad_enabled(self.exact_gradient and torch.is_grad_enabled()):
            squares = select(u.square(), kept)
            square, count = self.pool.mean(squares, groups.count, by=self.of_groups)
        found = Moments(torch.zeros_like(square), square, count, count)
        y = self.formula(u, found, groups.var_count)
        return y if self.padding == "forward" else select(y, kept), found

    def by_running(self, x: Float[Tensor, "B P D"], rows: slice) -> Float[Tensor, "B P D"]:
        return super().by_running(self.scaled(x), rows)

    def entering(self, count: Tensor, square: Tensor) -> Float[Tensor, "1 D"]:
        """Return the batch's mean square, or the running one if the batch has no tokens."""
        return torch.where(count > 0, square.to(self.running_square), self.running_square)

    def update(self, found: Moments, first: int = 0) -> None:
        """Move the running mean square towards a batch's.

        In the warm-up it first becomes the average over all batches, as in the authors' code.
        """
        self.batches += 1
        step, total = self.clock
        square = self.entering(found.count, found.var)
        if step == 0 or step < self.last_steps(total)["warmup"]:
            self.running_square.lerp_(square, 1 / self.batches)
        self.running_square.lerp_(square, self.momentum)

    @torch.no_grad()
    def see_gradient(self, mean: Tensor, count: Tensor) -> None:
        """Enter a training batch's gradient moment, `[G, 1, 1, D]`, now or at the update's end."""
        found = self.whole(Moments(mean, torch.zeros_like(mean), count, count))
        self.enter_together("enter_gradient", found)

    def enter_gradient(self, found: Moments) -> None:
        """Enter the last batch's gradient moment into the tables, unless it had no tokens."""
        raise NotImplementedError

    def running_moments(self) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self.running_square), self.running_square

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        self.running_square[rows].lerp_(var, share)


@dataclass(eq=False, repr=False, kw_only=True)
class PowerNormV(SquareNorm):
    """PN-V: divides by the batch's root mean square, exact gradients; no code by the authors."""

    groups: int | None

    def formula(self, u: Grouped, m: Moments, count: Tensor) -> Grouped:
        return self.gain_and_shift(u * self.inverse(m.var))


@dataclass(eq=False, repr=False, kw_only=True)
class PowerNorm(SquareNorm):
    """PN: divides by the batch's root mean square in the warm-up, then by the running one.

    z = u / sqrt(square + eps) (algorithm 2), with the running square from before the batch.
    In the backward pass, with g the gradient of z, nu a running moment that starts at 0, and means
    over tokens:

        g' = g - backward_momentum nu z        nu += mean(g' z)        du = g' / sqrt(s + eps)

    `backward` chooses s: with `code` it is the batch's square at every step, as in the authors'
    code; with `paper` it is the square used in the forward pass.
    """

    exact_gradient: ClassVar[bool] = False

    groups: int | None
    backward_momentum: float
    backward: Literal["code", "paper"]
    gradient_moment: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("gradient_moment", torch.zeros(1, self.dim))

    def formula(self, u: Grouped, m: Moments, count: Tensor) -> Grouped:
        by_batch = self.during("warmup")
        scale = self.inverse(m.var if by_batch else self.running_square.to(u))
        z = u * scale
        if z.requires_grad:
            factor = None if by_batch or self.backward == "paper" else self.inverse(m.var) / scale
            z.register_hook(self.without_nu(z.detach(), count, factor))
        return self.gain_and_shift(z)

    def without_nu(
        self, z: Tensor, count: Tensor, factor: Tensor | None
    ) -> Callable[[Tensor], Tensor]:
        """Return a hook that subtracts nu z from the gradient of `z` and enters the new moment.

        The hook then multiplies by `factor`, so that `du` uses s instead of the forward square.
        """
        trains, nu = self.regime == "train", self.gradient_moment.to(z).clone()

        def taken_out(grad: Tensor) -> Tensor:
            left = torch.addcmul(grad, nu, z, value=-self.backward_momentum)
            if trains:
                self.see_gradient(*self.pool.mean(left * z, count, by=self.of_groups))
            return left if factor is None else left * factor

        return taken_out

    def enter_gradient(self, found: Moments) -> None:
        self.gradient_moment.add_(found.mean.to(self.gradient_moment))
