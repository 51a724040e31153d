"""Norms by the moments of the last few batches, of the gradient too: MABN and Unified Norm.

Both divide by a root mean square over a window of batches, take the mean of such a window out of
the gradient, and correct by

    r = sqrt((square + eps) / (running square + eps)), clipped to 1/5 and 5

with the running square before the batch. In the warm-up, and until the window is full, they take
the batch's own moments; r is 1 until `correction_share` of the run.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.norms.base import EvalStats
from normlab.norms.ghost import Ghost
from normlab.norms.moments import Moments
from normlab.norms.square import Counted, SquareNorm, SquarePadding, scaled

_CLIP = 5.0


class Entry(NamedTuple):
    """How a batch, or each of G ghost batches, enters the windows.

    `slot` is its place there, `kept` what is left in it; `square` is what it is divided by. `full`
    tells whether a window gives the moments: after the warm-up, with no batch missing.
    """

    slot: int
    full: bool
    outlier: Bool[Tensor, "G 1"]
    kept: Float[Tensor, "G D"]
    square: Float[Tensor, "G D"]


class WindowNorm(SquareNorm):
    """What the two share: windows of `window` batches, and the correction.

    Raises:
        ValueError: the window is shorter than a batch.
    """

    exact_gradient: ClassVar[bool] = False
    squares: Tensor
    gradient_moments: Tensor

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
        window: int,
        warmup_share: float,
        warmup_steps: int | None,
        correction_share: float,
        correction_steps: int | None,
        ghost: Ghost,
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
        if window < 1:
            raise ValueError(f"norm.window={window} must be at least 1 batch")
        self.window = window
        self.correction_share = correction_share
        self.correction_steps = correction_steps
        self.corrected = False
        self.last: Entry | None = None
        self.keep("squares", torch.zeros(window, dim))
        self.keep("gradient_moments", torch.zeros(window, dim))

    def milestones(self, total: int | None) -> dict[str, int]:
        """Return the last steps of the warm-up, and of training without the correction."""
        found = super().milestones(total)
        steps = self.steps("correction", self.correction_share, self.correction_steps, total)
        return {**found, "correction": max(steps, found["warmup"])}

    def begin_step(self, step: int, total: int | None) -> None:
        """Take notice of a step of `total`."""
        super().begin_step(step, total)
        self.corrected = step > self.milestones(total)["correction"]

    def entry(self, newest: Float[Tensor, "G D"]) -> Entry:
        """Return how a batch enters, of its mean square."""
        raise NotImplementedError

    def update(self, found: Moments, first: int = 0) -> None:
        """Let the mean square of a batch that is trained on into the window and the running one."""
        entry = self.entry(found.var.flatten(0, 1))
        self.batches += 1
        self.squares[entry.slot] = entry.kept[0].to(self.squares)
        self.running_square.lerp_(entry.square.to(self.running_square), self.momentum)
        self.last = entry

    def last_entry(self) -> Entry | None:
        """Return how the batch that entered last did so."""
        return self.last

    @property
    def next_slot(self) -> int:
        """Where the batch at hand enters the windows."""
        return (self.batches + 1) % self.window

    @property
    def full(self) -> bool:
        """Whether the window gives the moments of the batch at hand."""
        return self.batches >= self.window and not self.warming_up

    def correction(self, entry: Entry) -> Float[Tensor, "G 1 D"]:
        """Return `r`, 1 for an outlier."""
        if not self.corrected:
            return torch.ones_like(entry.square)[:, None]
        running = self.running_square.to(entry.square)
        r = ((entry.square + self.eps) / (running + self.eps)).sqrt().clamp(1 / _CLIP, _CLIP)
        return torch.where(entry.outlier, 1.0, r)[:, None]

    def hook(
        self,
        z: Float[Tensor, "B P D"],
        counted: Counted,
        entry: Entry,
        center: Callable[[Float[Tensor, "G D"]], Float[Tensor, "G D"]],
    ) -> None:
        """Take `center(mean of gradient times z) * z` out of the gradient of `z`."""
        value, training = z.detach(), self.training

        def taken_out(grad: Tensor) -> Tensor:
            count, mean = self.mean(grad * value, counted.backward)
            out = center(mean[:, 0].to(self.gradient_moments))
            if training:
                self.observe_gradient(count, mean, entry)
            return grad - out[:, None].to(grad) * value

        if z.requires_grad:
            z.register_hook(taken_out)


def with_newest(
    window: Float[Tensor, "K D"], newest: Float[Tensor, "G D"], slot: int
) -> Float[Tensor, "G K D"]:
    """Return a window for each of G batches, which stands at `slot`."""
    windows = window.expand(len(newest), -1, -1).clone()
    windows[:, slot] = newest.to(window)
    return windows


class MovingAverageBatchNorm(WindowNorm):
    """MABN: by the mean of a window's squares, times r (Yan et al. 2020).

        y = weight r z + bias        dz' = dz - z mean over the window of mean(dz z)

    `center_weights` is the other half of the paper's method: each row of the products whose sums
    the norm reads loses its mean, in the place of the mean that the norm does not take
    (`normlab.models.centering`).
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
        window: int,
        warmup_share: float,
        warmup_steps: int | None,
        correction_share: float,
        correction_steps: int | None,
        center_weights: bool = False,
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
            window=window,
            warmup_share=warmup_share,
            warmup_steps=warmup_steps,
            correction_share=correction_share,
            correction_steps=correction_steps,
            ghost=ghost,
        )
        self.center_weights = center_weights

    def train_by(self, u: Float[Tensor, "B P D"], counted: Counted) -> Float[Tensor, "B P D"]:
        """Return the output by the squares of the window or of the batch."""
        found = self.moments(u, counted)
        entry = self.entry(found.var[:, 0])
        scale = (entry.square[:, None].to(u) + self.eps).rsqrt()
        z = scaled(u, scale, scale)
        before = self.gradient_moments.clone()

        def center(newest: Tensor) -> Tensor:
            return with_newest(before, newest, entry.slot).mean(1) if entry.full else newest

        self.hook(z, counted, entry, center)
        y = self.affine(z * self.correction(entry).to(z))
        self.observe_batch(found)
        return y

    def entry(self, newest: Float[Tensor, "G D"]) -> Entry:
        """Return how a batch enters, of its mean square: by the mean of a full window."""
        slot, full = self.next_slot, self.full
        square = with_newest(self.squares, newest, slot).mean(1).to(newest) if full else newest
        return Entry(slot, full, torch.zeros_like(newest[:, :1], dtype=torch.bool), newest, square)

    def enter_gradient(self, mean: Float[Tensor, "1 D"], entry: Entry) -> None:
        """Let a batch's moment of the gradient into the window."""
        self.gradient_moments[entry.slot] = mean[0].to(self.gradient_moments)


class UnifiedNorm(WindowNorm):
    """UN: by the geometric mean of a window's squares (Yang et al. 2022).

    r multiplies the gradient alone. What is taken out of it is a running average of the window's
    mean, which starts at 0 and is used in the warm-up too. With `filter`, a batch after the warm-up
    is an outlier if for a feature the arithmetic mean of the window exceeds the geometric one by
    more than `window` times the variance of the roots in the window; it is normalized by itself,
    and the running moments take its place in the windows.
    """

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
        window: int,
        filter: bool,
        warmup_share: float,
        warmup_steps: int | None,
        correction_share: float,
        correction_steps: int | None,
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
            window=window,
            warmup_share=warmup_share,
            warmup_steps=warmup_steps,
            correction_share=correction_share,
            correction_steps=correction_steps,
            ghost=ghost,
        )
        self.filter = filter
        self.keep("gradient_moment", torch.zeros(1, dim))

    def train_by(self, u: Float[Tensor, "B P D"], counted: Counted) -> Float[Tensor, "B P D"]:
        """Return the output by the squares of the window or of the batch."""
        found = self.moments(u, counted)
        entry = self.entry(found.var[:, 0])
        r = self.correction(entry).to(u)
        scale = (entry.square[:, None].to(u) + self.eps).rsqrt()
        z = scaled(u, scale, scale)
        moments, running = self.gradient_moments.clone(), self.gradient_moment.clone()

        def center(newest: Tensor) -> Tensor:
            _, mean = self.gradient_mean(newest, entry, moments, running)
            return torch.where(entry.outlier, mean, running.lerp(mean, self.momentum))

        self.hook(z, counted, entry, center)
        one = torch.ones_like(r)
        weight = scaled(self.weight.to(z).expand_as(r), one, r)
        y = self.affine(scaled(z, one, r), weight)
        self.observe_batch(found)
        return y

    def entry(self, newest: Float[Tensor, "G D"]) -> Entry:
        """Return how a batch enters, of its mean square: by the geometric mean of a full window."""
        slot, full = self.next_slot, self.full
        windows = with_newest(self.squares, newest, slot)
        outlier = self.outliers(windows)
        kept = newest if self.window == 1 else torch.where(outlier, self.running_square, newest)
        by_window = geometric_mean(windows).to(newest) if full else newest
        return Entry(slot, full, outlier, kept, torch.where(outlier, newest, by_window))

    def outliers(self, windows: Float[Tensor, "G K D"]) -> Bool[Tensor, "G 1"]:
        """Tell of which windows the newest batch is to be left out."""
        if self.window == 1 or not self.filter or self.warming_up:
            return windows.new_full((len(windows), 1), self.window == 1, dtype=torch.bool)
        allowed = self.window * self.squares.sqrt().var()
        return (windows.mean(1) - geometric_mean(windows) > allowed).any(-1, keepdim=True)

    def gradient_mean(
        self, newest: Float[Tensor, "G D"], entry: Entry, moments: Tensor, running: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what enters the window of `moments`, and what the running one moves towards."""
        kept = torch.where(entry.outlier, running, newest)
        if not entry.full:
            return kept, newest
        of_window = with_newest(moments, kept, entry.slot).mean(1)
        return kept, torch.where(entry.outlier, newest, of_window)

    def enter_gradient(self, mean: Float[Tensor, "1 D"], entry: Entry) -> None:
        """Let a batch's moment of the gradient into the window and the running one."""
        newest, running = mean.to(self.gradient_moment), self.gradient_moment
        kept, towards = self.gradient_mean(newest, entry, self.gradient_moments, running)
        self.gradient_moments[entry.slot] = kept[0]
        self.gradient_moment.lerp_(towards, self.momentum)


def geometric_mean(windows: Float[Tensor, "G K D"]) -> Float[Tensor, "G D"]:
    """Return the geometric mean over windows."""
    return windows.log().mean(1).exp()
