"""Norms by the moments of the last few batches, of the gradient too: MABN and Unified Norm.

Both divide by a root mean square over a window of batches, take the mean of such a window out of
the gradient, and correct by

    r = sqrt((square + eps) / (running square + eps)), clipped to 1/5 and 5

with the running square before the batch. In the warm-up, and until the window is full, they take
the batch's own moments; r is 1 until `correction_share` of the run.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import EvalStats
from normlab.norms.moments import Moments
from normlab.norms.square import Counted, SquareNorm, SquarePadding, scaled

_CLIP = 5.0


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
        )
        if window < 1:
            raise ValueError(f"norm.window={window} must be at least 1 batch")
        self.window = window
        self.correction_share = correction_share
        self.correction_steps = correction_steps
        self.corrected = False
        self.keep("squares", torch.zeros(window, dim))
        self.keep("gradient_moments", torch.zeros(window, dim))

    def begin_step(self, step: int, total: int | None) -> None:
        """Take notice of a step of `total`."""
        super().begin_step(step, total)
        first = self.steps("correction", self.correction_share, self.correction_steps, total)
        self.corrected = step > max(first, self.warmup)

    def update(self, found: Moments) -> None:
        """Count the batch: what it enters the statistics as is told by `enter_square`."""
        self.batches += 1

    def enter_square(self, square: Tensor) -> None:
        """Let what a training batch was divided by into the running mean square."""
        if self.training:
            self.running_square.lerp_(square.reshape(1, -1).to(self.running_square), self.momentum)

    def windowed(
        self, window: Tensor, newest: Tensor, slot: int, *, before: Tensor | None = None
    ) -> Tensor:
        """Return a window with its newest entry, which is kept in training.

        `before` is the window to enter into where others may have entered since.
        """
        entered = (window if before is None else before).clone()
        entered[slot] = newest.flatten().to(window)
        if self.training:
            window[slot] = entered[slot]
        return entered

    @property
    def slot(self) -> int:
        """Where the batch at hand enters the windows."""
        return (self.batches if self.training else self.batches + 1) % self.window

    @property
    def full(self) -> bool:
        """Whether the window gives the moments: after the warm-up, with no batch missing."""
        return self.batches > self.window and not self.warming_up

    def correction(self, square: Tensor, *, off: bool = False) -> Tensor:
        """Return `r`."""
        running = self.running_square.to(square)
        r = ((square + self.eps) / (running + self.eps)).sqrt().flatten()
        return r.clamp(1 / _CLIP, _CLIP) if self.corrected and not off else torch.ones_like(r)

    def hook(
        self,
        z: Float[Tensor, "B T D"],
        counted: Counted,
        center: Callable[[Tensor], Tensor],
    ) -> None:
        """Take `center(mean of gradient times z) * z` out of the gradient of `z`."""
        value = z.detach()

        def taken_out(grad: Tensor) -> Tensor:
            _, mean = self.mean(grad * value, counted.backward)
            return grad - center(mean.flatten()).to(grad) * value

        if z.requires_grad:
            z.register_hook(taken_out)


class MovingAverageBatchNorm(WindowNorm):
    """MABN: by the mean of a window's squares, times r (Yan et al. 2020).

        y = weight r z + bias        dz' = dz - z mean over the window of mean(dz z)

    The paper's method also centres the weights that stand before the norm; these are not here.
    """

    def train_by(self, u: Float[Tensor, "B T D"], counted: Counted) -> Float[Tensor, "B T D"]:
        """Return the output by the squares of the window or of the batch."""
        found = self.moments(u, counted)
        self.observe(found)
        slot, full = self.slot, self.full
        window = self.windowed(self.squares, found.var, slot)
        square = window.mean(0).to(u) if full else found.var.flatten()
        r = self.correction(square)
        self.enter_square(square)
        scale = (square + self.eps).rsqrt()
        z = scaled(u, scale, scale)
        before = self.gradient_moments.clone()

        def center(newest: Tensor) -> Tensor:
            moments = self.windowed(self.gradient_moments, newest, slot, before=before)
            return moments.mean(0) if full else newest

        self.hook(z, counted, center)
        return self.affine(z * r)


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
        )
        self.filter = filter
        self.keep("gradient_moment", torch.zeros(1, dim))

    def train_by(self, u: Float[Tensor, "B T D"], counted: Counted) -> Float[Tensor, "B T D"]:
        """Return the output by the squares of the window or of the batch."""
        found = self.moments(u, counted)
        self.observe(found)
        allowed = self.window * self.squares.sqrt().var()
        window = self.windowed(self.squares, found.var, self.slot)
        outlier = self.window == 1 or self.is_outlier(window, allowed)
        if outlier and self.window > 1:
            self.windowed(self.squares, self.running_square, self.slot)
        by_window = self.full and not outlier
        square = geometric_mean(window).to(u) if by_window else found.var.flatten()
        r = self.correction(square, off=outlier)
        self.enter_square(square)
        scale = (square + self.eps).rsqrt()
        z = scaled(u, scale, scale)
        self.hook(z, counted, self.center(outlier, by_window))
        one = torch.ones_like(r)
        return self.affine(scaled(z, one, r), scaled(self.weight.to(z), one, r))

    def is_outlier(self, window: Tensor, allowed: Tensor) -> bool:
        """Tell whether the newest batch of a window is to be left out."""
        if not self.filter or self.warming_up:
            return False
        return bool((window.mean(0) - geometric_mean(window) > allowed).any())

    def center(self, outlier: bool, by_window: bool) -> Callable[[Tensor], Tensor]:
        """Return what gives the moment to take out of the gradient, and keeps the newest."""
        slot, before = self.slot, self.gradient_moments.clone()
        running_before = self.gradient_moment.clone()

        def moment(newest: Tensor) -> Tensor:
            entry = running_before if outlier else newest
            window = self.windowed(self.gradient_moments, entry, slot, before=before)
            mean = window.mean(0) if by_window else newest.to(window)
            if self.training:
                self.gradient_moment.lerp_(mean, self.momentum)
            return mean if outlier else running_before[0].lerp(mean, self.momentum)

        return moment


def geometric_mean(window: Float[Tensor, "K D"]) -> Float[Tensor, " D"]:
    """Return the geometric mean over a window."""
    return window.log().mean(0).exp()
