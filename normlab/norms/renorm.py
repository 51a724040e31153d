"""Batch renormalization: batch norm held near the running statistics (Ioffe 2017, algorithm 1)."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import EvalStats, Stream, uncompiled
from normlab.norms.batch import BatchNorm, Padding
from normlab.norms.ghost import Ghost
from normlab.norms.moments import Moments, Pooling, Weights, moments_with_gradient, widen
from normlab.norms.warmup import WarmupNorm

_PLAIN = 1 / 8  # of the warm-up: until then it is batch norm (5,000 of 40,000 steps)
_SHIFT = 1 / 2  # of the warm-up: how long `d_max` then grows (to 25,000 of 40,000 steps)


class BatchRenorm(WarmupNorm, BatchNorm):
    """`(x - mu_B) / sigma_B * r + d`, by running statistics in inference.

        r = clip(sigma_B / sigma, 1 / r_max, r_max)    d = clip((mu_B - mu) / sigma, -d_max, d_max)

    are constants of the backward pass, with mu and sigma the running statistics before the batch.
    `r_max` grows from 1 and `d_max` from 0: in the first eighth of the warm-up both stand and this
    is batch norm; `r_max` is there at the end of the warm-up, `d_max` at five eighths of it. The
    running deviation is what averages, not the variance, and eps is added to a deviation.
    """

    exact_gradient: ClassVar[bool] = False
    running_std: Tensor

    def __init__(
        self,
        dim: int,
        *,
        eps: float,
        momentum: float,
        affine: bool,
        padding: Padding,
        eval_stats: EvalStats,
        sync: bool,
        r_max: float,
        d_max: float,
        warmup_share: float,
        warmup_steps: int | None,
        ghost: Ghost = None,
    ) -> None:
        super().__init__(
            dim,
            eps=eps,
            momentum=momentum,
            affine=affine,
            padding=padding,
            eval_stats=eval_stats,
            sync=sync,
            unbiased=False,
            ghost=ghost,
        )
        if r_max < 1 or d_max < 0:
            raise ValueError(f"norm.r_max={r_max} must be at least 1, norm.d_max={d_max} 0")
        self.r_max, self.d_max = r_max, d_max
        self.warm_up(warmup_share, warmup_steps)

    def keep_rows(self, rows: int) -> None:
        """Start running statistics for `rows` positions."""
        super().keep_rows(rows)
        self.drop("running_var")
        self.keep("running_std", torch.ones(rows, self.dim))

    @uncompiled
    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` by the statistics of the batch, corrected, or by the running ones."""
        return super().forward(x, stream)

    def standardize(
        self, x: Float[Tensor, "B P D"], weights: Weights, pooling: Pooling
    ) -> tuple[Float[Tensor, "B P D"], Moments]:
        """Return `x` by the statistics of the batch, corrected, and these statistics."""
        wide, weight, bias = widen(x, self.weight, self.bias)
        found = moments_with_gradient(wide, weights, pooling)
        std = self.deviation(found.var)
        r, d = self.corrections(found.mean.detach(), std.detach())
        z = (wide - found.mean) / std * r + d
        y = torch.addcmul(bias, z, weight) * weights.sums.to(z)
        return y.to(x.dtype), Moments(*(table.detach() for table in found))

    def corrections(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Return `r` and `d` of a batch at this step."""
        r_max, d_max = self.bounds
        running_std = self.running_std.to(std)
        r = (std / running_std).clamp(1 / r_max, r_max)
        return r, ((mean - self.running_mean.to(mean)) / running_std).clamp(-d_max, d_max)

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of `r` and `d` at this step."""
        if self.step == 0:
            return 1.0, 0.0
        if self.warmup == 0:
            return self.r_max, self.d_max
        past = (self.step - 1) / self.warmup - _PLAIN
        grown = min(max(past / (1 - _PLAIN), 0.0), 1.0), min(max(past / _SHIFT, 0.0), 1.0)
        return 1 + (self.r_max - 1) * grown[0], self.d_max * grown[1]

    def deviation(self, var: Tensor) -> Tensor:
        """Return the standard deviation of a variance, with eps."""
        least = torch.finfo(var.dtype).tiny  # a root of 0 has no gradient
        return var.clamp(min=least).sqrt() + self.eps

    def inverse(self, var: Tensor) -> Tensor:
        """Return what values are multiplied by: eps is in the running deviation already."""
        return var.rsqrt()

    def batch_divisor(self) -> Tensor | None:
        """Return None: running statistics have a part in it."""
        return None

    def running_moments(self) -> tuple[Tensor, Tensor]:
        """Return the running mean, and the square of the running deviation."""
        return self.running_mean, self.running_std.square()

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        """Move the running mean and deviation by a share."""
        self.running_mean[rows].lerp_(mean, share)
        self.running_std[rows].lerp_(self.deviation(var), share)

    def estimates(self, found: Moments) -> tuple[Tensor, Tensor]:
        """Return the mean and variance of `found`, `[1, D]` each."""
        return found.mean[0].to(self.running_mean), found.var[0].to(self.running_mean)
