"""Norms that divide by a root mean square over several batches: PowerNorm, MABN, Unified Norm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.norms.base import RunningNorm, uncompiled
from normlab.norms.pool import Axis, Grouped, Groups, Moments, select

SquarePadding = Literal["exclude", "include", "forward"]
Rows = Float[Tensor, "G D"]
_CLIP = 5.0  # the correction of MABN and Unified Norm lies between 1/5 and 5


@dataclass(eq=False, repr=False, kw_only=True)
class SquareNorm(RunningNorm):
    """A norm that divides by the batch's root mean square or, at inference, by the running one.

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

        In the warm-up it is first set to the average over all batches, as in the authors' code.
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
    """PN-V (Shen et al. 2020): divides by the batch's root mean square, with exact gradients.

    The authors published no code for it. With `padding=forward` it is the same as with `exclude`.
    """

    groups: int | None

    def formula(self, u: Grouped, m: Moments, count: Tensor) -> Grouped:
        return self.gain_and_shift(u * self.inverse(m.var))


@dataclass(eq=False, repr=False, kw_only=True)
class PowerNorm(SquareNorm):
    """PN: divides by the batch's root mean square in the warm-up, then by the running one.

    z = u / sqrt(square + eps) (Shen et al. 2020, algorithm 2), with the running square from before
    the batch. In the backward pass, with g the gradient of z, nu a running moment that starts at 0,
    and means over tokens:

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


class Entry(NamedTuple):
    """How a batch, or each of its G ghost batches, enters the windows.

    `slot` is its row in the windows, `kept` the mean square stored there, and `square` the mean
    square to divide by. If `full`, moments come from the windows, and the warm-up has ended.
    """

    slot: int
    full: bool
    outlier: Bool[Tensor, "G 1"]
    kept: Rows
    square: Rows


@dataclass(eq=False, repr=False, kw_only=True)
class MovingAverageBatchNorm(SquareNorm):
    """MABN: divides by the root mean square over a window of batches (Yan et al. 2020).

        y = weight r z + bias        dz' = dz - z mean over the window of mean(dz z)
        r = sqrt((square + eps) / (running square + eps)), clipped to 1/5 and 5

    with the running square from before the batch. In the warm-up, and until the window is full, the
    moments are the batch's own; r is 1 until `correction_share` of the run has passed.

    The norm subtracts no mean. Instead, with `center_weights`, each weight row of the linear layers
    before it is centered (`normlab.models.seq2seq.Layer._center`).
    """

    exact_gradient: ClassVar[bool] = False
    phases: ClassVar[tuple[str, ...]] = ("warmup", "correction")
    of_gradient: ClassVar[tuple[str, ...]] = ("gradient_moments",)  # tables of gradient moments

    window: int
    correction_share: float
    correction_steps: int | None
    center_weights: bool = False
    squares: Tensor = field(init=False)
    gradient_moments: Tensor = field(init=False)
    last: Entry = field(init=False)  # the entry of the latest batch

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("squares", torch.zeros(self.window, self.dim))
        self.register_buffer("gradient_moments", torch.zeros(self.window, self.dim))

    def last_steps(self, total: int | None) -> dict[str, int]:
        warmup, correction = super().last_steps(total).values()
        return {"warmup": warmup, "correction": max(correction, warmup)}

    def formula(self, u: Grouped, m: Moments, count: Tensor) -> Grouped:
        with torch.no_grad():
            entry = self.entry(m.var.flatten(0, 2))
            r = _grouped(self.correction(entry)).to(u)
        z = u * self.inverse(_grouped(entry.square).to(u))
        if z.requires_grad:
            z.register_hook(self.without_moment(z.detach(), count, entry))
        return self.corrected(z, r)

    def corrected(self, z: Grouped, r: Tensor) -> Grouped:
        """Return the output, given the correction `r` of each group."""
        return self.gain_and_shift(z * r)

    def entry(self, newest: Rows) -> Entry:
        """Return the entry of the next batch, given its mean square."""
        slot = (self.batches + 1) % self.window
        full = self.batches >= self.window and not self.during("warmup")
        windows = with_newest(self.squares, newest, slot)
        outlier = self.outliers(windows)
        by_window = self.average(windows).to(newest) if full else newest
        square = torch.where(outlier, newest, by_window)
        return Entry(slot, full, outlier, torch.where(outlier, self.running_square, newest), square)

    def average(self, windows: Float[Tensor, "G K D"]) -> Rows:
        """Return the mean square of each window."""
        return windows.mean(1)

    def outliers(self, windows: Float[Tensor, "G K D"]) -> Bool[Tensor, "G 1"]:
        """Return, for each ghost batch, whether the windows leave it out."""
        return windows.new_zeros(len(windows), 1, dtype=torch.bool)

    def correction(self, entry: Entry) -> Rows:
        """Return `r`, which is 1 for an outlier."""
        r = torch.ones_like(entry.square)
        if not self.during("correction"):
            running = self.running_square.to(entry.square)
            r = ((entry.square + self.eps) / (running + self.eps)).sqrt().clamp(1 / _CLIP, _CLIP)
        return torch.where(entry.outlier, 1.0, r)

    def update(self, found: Moments, first: int = 0) -> None:
        self.last = entry = self.entry(self.entering(found.count, found.var))
        self.batches += 1
        self.squares[entry.slot] = entry.kept[0]
        self.running_square.lerp_(self.entering(found.count, entry.square), self.momentum)

    def without_moment(self, z: Tensor, count: Tensor, entry: Entry) -> Callable[[Tensor], Tensor]:
        """Return a hook that subtracts a multiple of z from its gradient and records the moment."""
        trains = self.regime == "train"
        before = [self.tables[name].clone() for name in self.of_gradient]  # as of the forward pass

        def without(grad: Tensor) -> Tensor:
            mean, tokens = self.pool.mean(grad * z, count, by=self.of_groups)
            out = self.taken_out(mean.flatten(0, 2).to(before[0]), entry, before)
            if trains:
                self.see_gradient(mean, tokens)
            return torch.addcmul(grad, _grouped(out).to(grad), z, value=-1)

        return without

    def taken_out(self, newest: Rows, entry: Entry, before: Sequence[Tensor]) -> Rows:
        """Return the multiple of z to subtract: the mean of the window once full, else `newest`.

        `newest` is the mean of gradient times z, `before` the tables `of_gradient`.
        """
        return with_newest(before[0], newest, entry.slot).mean(1) if entry.full else newest

    def enter_gradient(self, found: Moments) -> None:
        moment = self.gradient_moments[self.last.slot]
        moment.copy_(torch.where(found.count > 0, found.mean.to(moment), moment)[0])


def _grouped(rows: Rows) -> Float[Tensor, "G 1 1 D"]:
    return rows.unflatten(0, (-1, 1, 1))


def with_newest(window: Float[Tensor, "K D"], newest: Rows, slot: int) -> Float[Tensor, "G K D"]:
    """Return one copy of the window per ghost batch, with its newest value at `slot`."""
    windows = window.expand(len(newest), -1, -1).clone()
    windows[:, slot] = newest.to(window)
    return windows


@dataclass(eq=False, repr=False, kw_only=True)
class UnifiedNorm(MovingAverageBatchNorm):
    """UN: divides by the root of the geometric mean of a window's squares (Yang et al. 2022).

    r multiplies only the gradient. The moment removed from the gradient is a running average of
    the window's mean, which starts at 0 and is also used in the warm-up. With `filter`, a batch
    after the warm-up is an outlier if, for any feature, the arithmetic mean of the window exceeds
    the geometric mean by more than `window` times the variance of the roots in the window. An
    outlier is normalized by its own moments, and the windows store the running moments instead.
    """

    of_gradient: ClassVar[tuple[str, ...]] = ("gradient_moments", "gradient_moment")

    filter: bool
    center_weights: bool = field(init=False, default=False)
    gradient_moment: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("gradient_moment", torch.zeros(1, self.dim))

    def corrected(self, z: Grouped, r: Tensor) -> Grouped:
        product = z * self.weight.to(z)
        if product.requires_grad:
            product.register_hook(lambda grad: grad * r)
        return product + self.bias.to(z)

    def average(self, windows: Float[Tensor, "G K D"]) -> Rows:
        return windows.log().mean(1).exp()

    def outliers(self, windows: Float[Tensor, "G K D"]) -> Bool[Tensor, "G 1"]:
        if self.window == 1 or not self.filter or self.during("warmup"):
            return windows.new_full((len(windows), 1), self.window == 1, dtype=torch.bool)
        allowed = self.window * self.squares.sqrt().var()
        return (windows.mean(1) - self.average(windows) > allowed).any(-1, keepdim=True)

    def taken_out(self, newest: Rows, entry: Entry, before: Sequence[Tensor]) -> Rows:
        _, mean = self.gradient_mean(newest, entry, *before)
        return torch.where(entry.outlier, mean, before[1].lerp(mean, self.momentum))

    def gradient_mean(
        self, newest: Rows, entry: Entry, moments: Tensor, nu: Tensor
    ) -> tuple[Rows, Rows]:
        """Return the value to store in the window of `moments`, and the value `nu` moves to."""
        kept = torch.where(entry.outlier, nu, newest)
        return kept, torch.where(entry.outlier, newest, super().taken_out(kept, entry, [moments]))

    def enter_gradient(self, found: Moments) -> None:
        moments, nu = self.gradient_moments, self.gradient_moment
        newest = torch.where(found.count > 0, found.mean.to(nu), nu)
        kept, towards = self.gradient_mean(newest, self.last, moments, nu)
        moments[self.last.slot] = kept[0]
        nu.lerp_(torch.where(found.count > 0, towards, nu), self.momentum)
