"""UN: Unified Normalization (Yang et al. 2022)."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.norms.base import during
from normlab.norms.gradient import scaled
from normlab.norms.mabn import Entry, MovingAverageBatchNorm, Rows


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
            product = scaled(product, self.r)
        return product + self.bias.to(z)

    def average(self, windows: Float[Tensor, "G K D"]) -> Rows:
        return windows.log().mean(1).exp()

    def outliers(self, windows: Float[Tensor, "G K D"]) -> Bool[Tensor, "G 1"]:
        if self.window == 1 or not self.filter or during(self, "warmup"):
            return windows.new_full((len(windows), 1), self.window == 1, dtype=torch.bool)
        allowed = self.window * self.squares.sqrt().var()
        return (windows.mean(1) - self.average(windows) > allowed).any(-1, keepdim=True)

    def multiple(self, entry: Entry) -> tuple[Rows, Tensor]:
        others, share = super().multiple(entry)
        fixed = self.gradient_moment.lerp(others, self.momentum)
        fixed = torch.where(entry.outlier, 0.0, fixed)
        return fixed, torch.where(entry.outlier, 1.0, self.momentum * share)

    def enter_gradient(self, moment: Tensor, counts: Tensor) -> None:
        nu, outlier = self.gradient_moment, self.last.outlier
        newest = torch.where(counts, moment, nu)
        stored = torch.where(outlier, nu, newest)
        others, share = super().multiple(self.last)
        towards = torch.where(outlier, newest, others + share * stored)
        super().enter_gradient(stored, torch.ones_like(counts))
        nu.lerp_(torch.where(counts, towards, nu), self.momentum)
