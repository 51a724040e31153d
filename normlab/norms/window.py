"""MABN and Unified Norm: activation and gradient moments averaged over the last few batches.

Both divide by a root mean square over a window of batches, remove a windowed moment from the
gradient, and correct by

    r = sqrt((square + eps) / (running square + eps)), clipped to 1/5 and 5

with the running square from before the batch. In the warm-up, and until the window is full, they
use the batch's own moments; r is 1 until `correction_share` of the run has passed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.norms.pool import Grouped, Moments
from normlab.norms.power import SquareNorm

_CLIP = 5.0
Rows = Float[Tensor, "G D"]


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
    """MABN: divides by the root mean square over a window, then multiplies by r (Yan et al. 2020).

        y = weight r z + bias        dz' = dz - z mean over the window of mean(dz z)

    The norm subtracts no mean. Instead, with `center_weights`, each weight row of the linear layers
    before it is centered (`normlab.models.seq2seq.Layer.center`).
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
        """Return whether each newest batch is left out of the windows."""
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
        """Return the multiple of z to subtract; `newest` is the mean of gradient times z."""
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
        if not entry.full:
            return kept, newest
        of_window = with_newest(moments, kept, entry.slot).mean(1)
        return kept, torch.where(entry.outlier, newest, of_window)

    def enter_gradient(self, found: Moments) -> None:
        moments, nu = self.gradient_moments, self.gradient_moment
        newest = torch.where(found.count > 0, found.mean.to(nu), nu)
        kept, towards = self.gradient_mean(newest, self.last, moments, nu)
        moments[self.last.slot] = kept[0]
        nu.lerp_(torch.where(found.count > 0, towards, nu), self.momentum)
