"""UN: Unified Normalization (Yang et al. 2022)."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.norms.base import during
from normlab.norms.gradient import projected
from normlab.norms.mabn import Entry, MovingAverageBatchNorm, Multiple, Rows
from normlab.norms.moments import Moments
from normlab.norms.window import Window


@dataclass(eq=False, repr=False, kw_only=True)
class UnifiedNorm(MovingAverageBatchNorm):
    """UN: divides by the root of the geometric mean of a window's squares.

    r multiplies only the gradient. The moment removed from the gradient is a running average of
    the window's mean, which starts at 0 and is also used in the warm-up. With `filter`, a batch
    after the warm-up is an outlier if, for any feature, the arithmetic mean of the window exceeds
    the geometric mean by more than `window` times the variance of the roots in the window. An
    outlier is normalized by its own moments, and the windows store the running moments instead.
    """

    filter: bool
    center_weights: bool = field(init=False, default=False)
    gradient_moment: Tensor = field(init=False)
    r: Tensor = field(init=False)  # of the latest batch

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("gradient_moment", torch.zeros(1, self.dim))

    def corrected(self, z: Tensor, r: Tensor) -> Tensor:
        self.r = r  # of the gradient alone, behind the gain
        return z

    def output(self, z: Tensor, x: Tensor) -> Tensor:
        product = z * self.weight.to(z)
        if self.regime != "running" and torch.is_grad_enabled():
            r = self.r
            product = projected(product, lambda g, _: g * r)
        return product + self.bias.to(z)

    def average(self, windows: Float[Tensor, "G K D"]) -> Rows:
        return windows.log().mean(1).exp()

    def outliers(self, windows: Float[Tensor, "G K D"]) -> Bool[Tensor, "G 1"]:
        if self.window == 1 or not self.filter or during(self, "warmup"):
            return windows.new_full((len(windows), 1), self.window == 1, dtype=torch.bool)
        allowed = self.window * self.squares.sqrt().var()
        return (windows.mean(1) - self.average(windows) > allowed).any(-1, keepdim=True)

    def multiple(self, entry: Entry) -> Multiple:
        frozen = Window(self.gradient_moments).frozen()
        nu, momentum = self.gradient_moment.clone(), self.momentum

        def multiple(newest: Rows) -> Rows:
            _, mean = gradient_mean(newest, entry, frozen, nu)
            return torch.where(entry.outlier, mean, nu.lerp(mean, momentum))

        return multiple

    def enter_gradient(self, found: Moments) -> None:
        window, nu = Window(self.gradient_moments), self.gradient_moment
        newest = torch.where(found.count > 0, found.mean.to(nu), nu)
        stored, towards = gradient_mean(newest, self.last, window, nu)
        self.gradient_moments[self.last.slot] = stored[0]
        nu.lerp_(torch.where(found.count > 0, towards, nu), self.momentum)


def gradient_mean(newest: Rows, entry: Entry, window: Window, nu: Tensor) -> tuple[Rows, Rows]:
    """Return the moment to store in the window, and the value that `nu` moves to.

    `newest` is the moment of the batch, and `nu` the running one.
    """
    stored = torch.where(entry.outlier, nu, newest)
    mean = window.with_newest(stored, entry.slot).mean(1) if entry.full else stored
    return stored, torch.where(entry.outlier, newest, mean)
