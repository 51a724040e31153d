"""PowerNorm: division by a running root mean square, with its own backward (Shen et al. 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from normlab.norms.base import RunningNorm, uncompiled
from normlab.norms.pool import AllReduce, Axis, Counted, Moments, all_tokens, here, select

SquarePadding = Literal["exclude", "include", "forward"]
Grouped = Float[Tensor, "G S 1 D"]


@dataclass(eq=False, repr=False, kw_only=True)
class SquareNorm(RunningNorm):
    """Division by a root mean square over the batch, and by `running_square` in inference.

    `padding` says which tokens count: `exclude` real ones, `include` all, `forward` real ones in
    the forward pass and all in the moment of the gradient, as published code has it.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position"})
    phases: ClassVar[tuple[str, ...]] = ("warmup",)
    once_an_update: ClassVar[bool] = True
    fewest: ClassVar[int] = 1

    padding: SquarePadding
    warmup_share: float
    warmup_steps: int | None
    running_square: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.held_gradients: list[tuple[Tensor, Tensor]] = []
        self.register_buffer("running_square", torch.ones(1, self.dim))

    forward = uncompiled(RunningNorm.forward)

    def formula(self, u: Grouped, m: Moments, count: Tensor) -> Grouped:
        """Return the output by the mean square of each group, `m.var`.

        `count` is the number of tokens that a moment of the gradient is made of.
        """
        raise NotImplementedError

    def before(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        """Return what the mean square is taken of."""
        return x

    def by_running(self, x: Float[Tensor, "B P D"], rows: slice) -> Float[Tensor, "B P D"]:
        square = self.running_square.to(x)
        return self.gain_and_shift(self.before(x) * (square + self.eps).rsqrt())

    def by_batch(
        self, x: Float[Tensor, "B P D"], counted: Counted, rows: slice
    ) -> Float[Tensor, "B P D"]:
        forward = self.padding == "forward"
        real = self.pool.cut(x, counted)
        every = self.pool.cut(x, all_tokens(x)) if forward else real
        u = self.before(every.x)
        with torch.set_grad_enabled(self.exact_gradient and torch.is_grad_enabled()):
            squares = select(u.square(), real.kept) if forward else u.square()
            square, count = self.pool.mean(squares, real.count, by=self.of_groups)
        found = Moments(torch.zeros_like(square), square, count, count)
        y = self.formula(u, found, every.count)
        self.see_groups(found)
        return self.pool.join(select(y, every.kept), like=x)

    def entering(self, count: Tensor, square: Tensor) -> Float[Tensor, "1 D"]:
        """Return the mean square of `count` tokens, or the running one if no token came."""
        running = self.running_square
        return torch.where(count > 0, square.to(running), running)

    @torch.no_grad()
    def see_gradient(self, mean: Tensor, count: Tensor) -> None:
        """Let a training batch's moment of the gradient, `[G, 1, 1, D]`, into the tables."""
        if self.ghost is not None:
            mean, count = _pooled([(mean, count)], self.all_reduce)
        if self.held is not None:
            self.held_gradients.append((mean, count))
        else:
            self.enter_gradient(mean.flatten(0, 2), count.flatten(0, 2))

    def enter_gradient(self, mean: Float[Tensor, "1 D"], count: Float[Tensor, "1 1"]) -> None:
        """Let the last batch's moment of the gradient into the tables, unless no token made it."""
        raise NotImplementedError

    def commit(self) -> None:
        super().commit()
        held, self.held_gradients = self.held_gradients, []
        if held:
            mean, count = _pooled(held, here)
            self.enter_gradient(mean.flatten(0, 2), count.flatten(0, 2))

    def running_moments(self) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self.running_square), self.running_square

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        self.running_square[rows].lerp_(var, share)


def _pooled(means: Sequence[tuple[Tensor, Tensor]], all_reduce: AllReduce) -> tuple[Tensor, Tensor]:
    """Return mean and count of all groups together."""
    sums = torch.cat([torch.cat([count, count * mean], -1) for mean, count in means])
    total = all_reduce(sums.sum(0, keepdim=True))
    return total[..., 1:] / total[..., :1].clamp(min=1), total[..., :1]


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, scale: Tensor, backward_scale: Tensor) -> Tensor:
        ctx.save_for_backward(backward_scale)
        return u * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (backward_scale,) = ctx.saved_tensors
        return grad * backward_scale, None, None


def scaled(u: Tensor, scale: Tensor, *, backward: Tensor) -> Tensor:
    """Return `u * scale`; the gradient of `u` is that of the output times `backward`."""
    return _Scale.apply(u, scale, backward)


@dataclass(eq=False, repr=False, kw_only=True)
class GroupScaling(SquareNorm):
    """Divides each of `groups` runs of neighboring features of a token by its root mean square.

    That is done before the batch's mean square is taken (appendix of the paper, in all of its
    code); None leaves it out. Without it the norm is a fixed map in inference.

    Raises:
        ValueError: `groups` does not divide the width.
    """

    groups: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups is not None and (self.groups < 1 or self.dim % self.groups):
            raise ValueError(
                f"norm.groups={self.groups} does not divide the width {self.dim}: use a divisor, "
                "or null"
            )

    def before(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        if self.groups is None:
            return x
        grouped = x.unflatten(-1, (self.groups, -1))
        square = grouped.square().mean(-1, keepdim=True)
        return (grouped * (square + self.eps).rsqrt()).flatten(-2)

    @torch.no_grad()
    def update(self, found: Moments, first: int = 0) -> None:
        """Let a batch's mean square into the running one.

        In the warm-up all batches weigh the same first; then, there too, the newest more, as in the
        authors' code.
        """
        self.batches += 1
        step, total = self.clock
        square = self.entering(found.count, found.var)
        if step == 0 or step < self.last_steps(total)["warmup"]:
            self.running_square.lerp_(square, 1 / self.batches)
        self.running_square.lerp_(square, self.momentum)


class PowerNormV(GroupScaling):
    """PN-V: each feature over its root mean square over the batch, by exact gradients.

    The authors' repository has no code of it.
    """

    def formula(self, u: Grouped, m: Moments, count: Tensor) -> Grouped:
        return self.gain_and_shift(u * (m.var + self.eps).rsqrt())


@dataclass(eq=False, repr=False, kw_only=True)
class PowerNorm(GroupScaling):
    """PN: by the running root mean square after a warm-up, by the batch's before (algorithm 2).

    z = u / sqrt(square + eps), with the square of the batch in the warm-up, else the running one
    before the batch. Backward, with g the gradient of z, nu an average that starts at 0, and means
    over tokens:

        g' = g - backward_momentum nu z        nu += mean(g' z)        du = g' / sqrt(s + eps)

    `backward` says what s is: `code` takes the batch's square at every step, as the authors' code
    does; `paper` what the forward pass divided by.
    """

    exact_gradient: ClassVar[bool] = False

    backward_momentum: float
    backward: Literal["code", "paper"]
    gradient_moment: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("gradient_moment", torch.zeros(1, self.dim))

    def formula(self, u: Grouped, m: Moments, count: Tensor) -> Grouped:
        square = m.var if self.during("warmup") else self.running_square.to(u)
        scale = (square + self.eps).rsqrt()
        by_code = self.backward == "code"
        z = scaled(u, scale, backward=(m.var + self.eps).rsqrt() if by_code else scale)
        if z.requires_grad:
            z.register_hook(self.without_nu(z.detach(), count))
        return self.gain_and_shift(z)

    def without_nu(self, z: Tensor, count: Tensor) -> Any:
        """Return what takes nu z out of the gradient of `z`, and lets the new moment into nu."""
        trains, nu = self.regime == "train", self.gradient_moment.to(z).clone()

        def taken_out(grad: Tensor) -> Tensor:
            left = torch.addcmul(grad, nu, z, value=-self.backward_momentum)
            if trains:
                self.see_gradient(*self.pool.mean(left * z, count, by=self.of_groups))
            return left

        return taken_out

    def enter_gradient(self, mean: Float[Tensor, "1 D"], count: Float[Tensor, "1 1"]) -> None:
        self.gradient_moment.add_(mean.to(self.gradient_moment))
