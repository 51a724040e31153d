"""Batch renormalization, which keeps training outputs close to inference outputs (Ioffe 2017)."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.batch import BatchNorm
from normlab.norms.ramp import Clock, Ramp

_PLAIN = 1 / 8  # share of the warm-up with plain batch norm (5,000 of 40,000 steps)
_SHIFT = 1 / 2  # share of the warm-up in which d's bound then grows (to step 25,000 of 40,000)


@dataclass(eq=False, repr=False, kw_only=True)
class BatchRenorm(BatchNorm):
    """`weight ((x - mu_B) / sigma_B r + d) + bias` in training (Ioffe 2017, algorithm 1).

        r = clip(sigma_B / sigma, 1 / r_max, r_max)    d = clip((mu_B - mu) / sigma, -d_max, d_max)

    mu_B and sigma_B are the statistics of the batch, mu and sigma the running statistics before the
    batch. Inference computes `weight (x - mu) / sigma + bias`. r and d are constants in the
    backward pass. In the first eighth of the warm-up, r is 1 and d is 0, as in batch norm. Then
    their bounds grow: that of d reaches `d_max` after five eighths of the warm-up, and that of r
    reaches `r_max` at its end. The tables hold a running deviation instead of a variance, and eps
    is added to deviations.
    """

    exact_gradient: ClassVar[bool] = False
    same_in_training: ClassVar[bool] = False
    once_an_update: ClassVar[bool] = True

    r_max: float
    d_max: float
    warmup_share: float
    warmup_steps: int | None
    unbiased: bool = field(init=False, default=False)
    running_std: Tensor = field(init=False)
    bounds: Float[Tensor, "2"] = field(init=False)  # the bounds of r and d at this step

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ramps = (Ramp("warmup", self.warmup_share, self.warmup_steps),)
        self.register_buffer("bounds", torch.tensor([1.0, 0.0]), persistent=False)

    def keep_rows(self, rows: int) -> None:
        self.register_buffer("running_mean", torch.zeros(rows, self.dim))
        self.register_buffer("running_std", torch.ones(rows, self.dim))

    def formula(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return (x - mean) * var.rsqrt()  # eps is part of the running deviation

    def training_formula(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Return `(x - mu_B) / sigma_B r + d`."""
        std, (r_max, d_max) = self.deviation(var), self.bounds.to(var)
        mu, sigma = self.running_mean.to(std), self.running_std.to(std)
        r = (std.detach() / sigma).clamp(r_max.reciprocal(), r_max)
        d = ((mean.detach() - mu) / sigma).clamp(-d_max, d_max)
        return (x - mean) * (r / std) + d

    def begin_step(self, clock: Clock) -> None:
        super().begin_step(clock)
        for bound, value in zip(self.bounds, self.bounds_at(clock), strict=True):
            bound.fill_(value)

    def bounds_at(self, clock: Clock) -> tuple[float, float]:
        """Return the bounds of r and d at a step. Outside a run they are 1 and 0."""
        step, total = clock
        if step == 0:
            return 1.0, 0.0
        warmup = self.last_steps(total)["warmup"]
        if warmup == 0:
            return self.r_max, self.d_max
        past = (step - 1) / warmup - _PLAIN
        grown = min(max(past / (1 - _PLAIN), 0.0), 1.0), min(max(past / _SHIFT, 0.0), 1.0)
        return 1 + (self.r_max - 1) * grown[0], self.d_max * grown[1]

    def deviation(self, var: Tensor) -> Tensor:
        """Return the square root of a variance, plus eps."""
        least = torch.finfo(var.dtype).tiny  # the gradient of a square root at 0 is infinite
        return var.clamp(min=least).sqrt() + self.eps

    def running_moments(self) -> tuple[Tensor, Tensor]:
        return self.running_mean, self.running_std.square()

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        self.running_mean[rows].lerp_(mean, share)
        self.running_std[rows].lerp_(self.deviation(var), share)
