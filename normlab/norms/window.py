"""Norms by the moments of the last few batches, of the gradient too: MABN and Unified Norm.

Both divide by a root mean square over a window of batches, take the mean of such a window out of
the gradient, and correct by

    r = sqrt((square + eps) / (running square + eps)), clipped to 1/5 and 5

with the running square before the batch. In the warm-up, and until the window is full, they take
the batch's own moments; r is 1 until `correction_share` of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.norms.pool import Moments
from normlab.norms.power import Grouped, SquareNorm

_CLIP = 5.0
Rows = Float[Tensor, "G D"]


class Entry(NamedTuple):
    """How a batch, or each of G ghost batches, enters the windows.

    `slot` is its place there, `kept` what is left in it; `square` is what it is divided by. `full`
    is whether a window gives the moments: after the warm-up, with no batch missing.
    """

    slot: int
    full: bool
    outlier: Bool[Tensor, "G 1"]
    kept: Rows
    square: Rows


@dataclass(eq=False, repr=False, kw_only=True)
class WindowNorm(SquareNorm):
    """What the two share: windows of `window` batches, and the correction.

    Raises:
        ValueError: the window is shorter than a batch.
    """

    exact_gradient: ClassVar[bool] = False
    phases: ClassVar[tuple[str, ...]] = ("warmup", "correction")
    of_gradient: ClassVar[tuple[str, ...]] = ("gradient_moments",)
    """The tables of the gradient's moments."""

    window: int
    correction_share: float
    correction_steps: int | None
    squares: Tensor = field(init=False)
    gradient_moments: Tensor = field(init=False)
    last: Entry = field(init=False)  # of the batch that entered last

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1:
            raise ValueError(f"norm.window={self.window} must be at least 1 batch")
        self.register_buffer("squares", torch.zeros(self.window, self.dim))
        self.register_buffer("gradient_moments", torch.zeros(self.window, self.dim))

    def last_steps(self, total: int | None) -> dict[str, int]:
        warmup, correction = super().last_steps(total).values()
        return {"warmup": warmup, "correction": max(correction, warmup)}

    def formula(self, u: Grouped, m: Moments, count: Tensor) -> Grouped:
        with torch.no_grad():
            entry = self.entry(m.var.flatten(0, 2))
            scale = (_grouped(entry.square).to(u) + self.eps).rsqrt()
            r = _grouped(self.correction(entry)).to(scale)
        z = u * scale
        if z.requires_grad:
            self.without_moment(z, count, entry)
        return self.corrected(z, r)

    def entry(self, newest: Rows) -> Entry:
        """Return how a batch enters, of its mean square."""
        raise NotImplementedError

    def taken_out(self, newest: Rows, entry: Entry, before: Sequence[Tensor]) -> Rows:
        """Return what is taken out of the gradient, of a batch's mean of gradient times z.

        `before` are the tables `of_gradient` as the forward pass found them.
        """
        raise NotImplementedError

    def corrected(self, z: Grouped, r: Tensor) -> Grouped:
        """Return the output by the correction of each group."""
        raise NotImplementedError

    def update(self, found: Moments, first: int = 0) -> None:
        self.last = entry = self.entry(self.entering(found.count, found.var))
        self.batches += 1
        self.squares[entry.slot] = entry.kept[0]
        self.running_square.lerp_(self.entering(found.count, entry.square), self.momentum)

    @property
    def next_slot(self) -> int:
        """Where the next batch enters the windows."""
        return (self.batches + 1) % self.window

    @property
    def full(self) -> bool:
        """Whether the window gives the moments of the next batch."""
        return self.batches >= self.window and not self.during("warmup")

    def correction(self, entry: Entry) -> Rows:
        """Return `r`, 1 for an outlier."""
        r = torch.ones_like(entry.square)
        if not self.during("correction"):
            running = self.running_square.to(entry.square)
            r = ((entry.square + self.eps) / (running + self.eps)).sqrt().clamp(1 / _CLIP, _CLIP)
        return torch.where(entry.outlier, 1.0, r)

    def without_moment(self, z: Tensor, count: Tensor, entry: Entry) -> None:
        """Take a multiple of z out of the gradient of `z`, and let its moment into the window."""
        value, trains = z.detach(), self.regime == "train"
        before = [self.tables[name].clone() for name in self.of_gradient]

        def without(grad: Tensor) -> Tensor:
            mean, tokens = self.pool.mean(grad * value, count, by=self.of_groups)
            out = self.taken_out(mean.flatten(0, 2).to(before[0]), entry, before)
            if trains:
                self.see_gradient(mean, tokens)
            return torch.addcmul(grad, _grouped(out).to(grad), value, value=-1)

        z.register_hook(without)


def _grouped(rows: Rows) -> Float[Tensor, "G 1 1 D"]:
    return rows.unflatten(0, (-1, 1, 1))


def with_newest(window: Float[Tensor, "K D"], newest: Rows, slot: int) -> Float[Tensor, "G K D"]:
    """Return the window of each of G batches, which is at `slot`."""
    windows = window.expand(len(newest), -1, -1).clone()
    windows[:, slot] = newest.to(window)
    return windows


@dataclass(eq=False, repr=False, kw_only=True)
class MovingAverageBatchNorm(WindowNorm):
    """MABN: by the mean of a window's squares, times r (Yan et al. 2020).

        y = weight r z + bias        dz' = dz - z mean over the window of mean(dz z)

    `center_weights` is the other half of the paper's method: each row of the linear layers whose
    outputs the norm reads loses its mean, in place of the mean that the norm does not take
    (`normlab.models.seq2seq.Layer.center`).
    """

    center_weights: bool = False

    def entry(self, newest: Rows) -> Entry:
        slot, full = self.next_slot, self.full
        square = with_newest(self.squares, newest, slot).mean(1).to(newest) if full else newest
        return Entry(slot, full, torch.zeros_like(newest[:, :1], dtype=torch.bool), newest, square)

    def taken_out(self, newest: Rows, entry: Entry, before: Sequence[Tensor]) -> Rows:
        return with_newest(before[0], newest, entry.slot).mean(1) if entry.full else newest

    def corrected(self, z: Grouped, r: Tensor) -> Grouped:
        return self.gain_and_shift(z * r)

    def enter_gradient(self, mean: Float[Tensor, "1 D"], count: Float[Tensor, "1 1"]) -> None:
        moment = self.gradient_moments[self.last.slot]
        moment.copy_(torch.where(count > 0, mean.to(moment), moment)[0])


@dataclass(eq=False, repr=False, kw_only=True)
class UnifiedNorm(WindowNorm):
    """UN: by the geometric mean of a window's squares (Yang et al. 2022).

    r multiplies the gradient alone. What is taken out of it is a running average of the window's
    mean, which starts at 0 and is used in the warm-up too. With `filter`, a batch after the warm-up
    is an outlier if for a feature the arithmetic mean of the window exceeds the geometric one by
    more than `window` times the variance of the roots in the window; it is normalized by itself,
    and the running moments take its place in the windows.
    """

    of_gradient: ClassVar[tuple[str, ...]] = ("gradient_moments", "gradient_moment")

    filter: bool
    gradient_moment: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("gradient_moment", torch.zeros(1, self.dim))

    def entry(self, newest: Rows) -> Entry:
        slot, full = self.next_slot, self.full
        windows = with_newest(self.squares, newest, slot)
        outlier = self.outliers(windows)
        kept = newest if self.window == 1 else torch.where(outlier, self.running_square, newest)
        by_window = geometric_mean(windows).to(newest) if full else newest
        return Entry(slot, full, outlier, kept, torch.where(outlier, newest, by_window))

    def outliers(self, windows: Float[Tensor, "G K D"]) -> Bool[Tensor, "G 1"]:
        """Return of which windows the newest batch is to be left out."""
        if self.window == 1 or not self.filter or self.during("warmup"):
            return windows.new_full((len(windows), 1), self.window == 1, dtype=torch.bool)
        allowed = self.window * self.squares.sqrt().var()
        return (windows.mean(1) - geometric_mean(windows) > allowed).any(-1, keepdim=True)

    def taken_out(self, newest: Rows, entry: Entry, before: Sequence[Tensor]) -> Rows:
        _, mean = self.gradient_mean(newest, entry, *before)
        return torch.where(entry.outlier, mean, before[1].lerp(mean, self.momentum))

    def corrected(self, z: Grouped, r: Tensor) -> Grouped:
        product = z * self.weight.to(z)
        if product.requires_grad:
            product.register_hook(lambda grad: grad * r)
        return product + self.bias.to(z)

    def gradient_mean(
        self, newest: Rows, entry: Entry, moments: Tensor, nu: Tensor
    ) -> tuple[Rows, Rows]:
        """Return what enters the window of `moments`, and what `nu` moves towards."""
        kept = torch.where(entry.outlier, nu, newest)
        if not entry.full:
            return kept, newest
        of_window = with_newest(moments, kept, entry.slot).mean(1)
        return kept, torch.where(entry.outlier, newest, of_window)

    def enter_gradient(self, mean: Float[Tensor, "1 D"], count: Float[Tensor, "1 1"]) -> None:
        moments, nu = self.gradient_moments, self.gradient_moment
        newest = torch.where(count > 0, mean.to(nu), nu)
        kept, towards = self.gradient_mean(newest, self.last, moments, nu)
        moments[self.last.slot] = kept[0]
        nu.lerp_(torch.where(count > 0, towards, nu), self.momentum)


def geometric_mean(windows: Float[Tensor, "G K D"]) -> Float[Tensor, "G D"]:
    """Return the geometric mean over windows."""
    return windows.log().mean(1).exp()
