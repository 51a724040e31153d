"""UN: Unified Normalization (Yang et al. 2022)."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.norms.base import during
from normlab.norms.gradient import scaled
from normlab.norms.mabn import MovingAverageBatchNorm, Rows, WindowEntry


@dataclass(eq=False, repr=False, kw_only=True)
class UnifiedNorm(MovingAverageBatchNorm):
    """UN: `weight x / sqrt(sigma^2 + eps) + bias`, with its own gradient.

        training     z = x / sqrt(sigma^2 + eps),  y = weight z + bias:
                     sigma^2 is the geometric mean of mean(x^2) over the last `window` batches
        backward     dz = r weight dy,  dz' = dz - nu z,  dx = dz' / sqrt(sigma^2 + eps):
                     before that, with this batch in the window,
                     nu += momentum (mean of mean(dz z) over the last `window` batches - nu);
                     r is MABN's, but only in the gradient of z and of the weight
        inference    y = weight x / sqrt(running sigma^2 + eps) + bias

    In the warm-up, and until the window is full, sigma^2 is the batch's own mean(x^2). nu starts at
    0 and is also used in the warm-up.

    With `filter`, a batch after the warm-up is an outlier if, for any feature, the arithmetic mean
    of the window exceeds the geometric mean by more than `window` times the variance of the roots
    in the window. An outlier is normalized by its own moments, and the running moments enter the
    windows in its place.

    The division is `SquareNorm.formula` (`square.py`), dz' is `Projection` (`gradient.py`), and
    `MovingAverageBatchNorm.training_formula` (`mabn.py`) has all steps in order. Source: the
    authors' `unified_normalization.py`.
    """

    filter: bool
    center_weights: bool = field(init=False, default=False)
    gradient_moment: Tensor = field(init=False)
    r: Tensor = field(init=False)  # the correction of the latest batch

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("gradient_moment", torch.zeros(1, self.dim))

    def corrected(self, z: Tensor, r: Tensor) -> Tensor:
        self.r = r  # applied only in the gradient, after the gain
        return z

    def output(self, z: Tensor, x: Tensor) -> Tensor:
        product = z * self.weight.to(z)
        if self.regime != "running" and torch.is_grad_enabled():
            product = scaled(product, self.r)
        return product + self.bias.to(z)

    def average(self, windows: Float[Tensor, "G K D"]) -> Rows:
        return windows.log().mean(1).exp()

    def outliers(self, windows: Float[Tensor, "G K D"]) -> Bool[Tensor, "G 1"] | None:
        if self.window == 1:  # the window is the batch itself, so there is nothing to average
            return windows.new_ones(len(windows), 1, dtype=torch.bool)
        if not self.filter or during(self, "warmup"):
            return None
        allowed = self.window * self.squares.sqrt().var()
        return (windows.mean(1) - self.average(windows) > allowed).any(-1, keepdim=True)

    def projection_coefficients(self, entry: WindowEntry) -> tuple[Rows, Tensor]:
        others, share = super().projection_coefficients(entry)
        fixed, share = self.gradient_moment.lerp(others, self.momentum), self.momentum * share
        if (outlier := entry.outlier) is None:
            return fixed, share
        return torch.where(outlier, 0.0, fixed), torch.where(outlier, 1.0, share)

    def enter_gradient(self, moment: Tensor, counts: Tensor) -> None:
        nu, outlier = self.gradient_moment, self.last.outlier
        newest = torch.where(counts, moment, nu)
        stored = newest if outlier is None else torch.where(outlier, nu, newest)
        others, share = super().projection_coefficients(self.last)
        towards = torch.addcmul(others, share, stored)
        towards = towards if outlier is None else torch.where(outlier, newest, towards)
        super().enter_gradient(stored, torch.ones_like(counts))
        nu.lerp_(torch.where(counts, towards, nu), self.momentum)
