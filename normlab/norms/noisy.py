"""Batch norm with drift put back: is it worth anything because its output does not drift?"""

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import EvalStats, Stream
from normlab.norms.batch import BatchNorm, Padding
from normlab.norms.ghost import Ghost


class NoisyBatchNorm(BatchNorm):
    """Batch norm whose output has another mean and deviation in each update, in training alone.

    With `z` the normalized value of a feature, `m` drawn from `[-noise_shift, noise_shift]` and `s`
    from `[1, noise_scale]` anew for each update, place and feature,

        y = weight * (z * s + m) + bias

    so that what follows is given a distribution that moves, and no larger gain drowns that. After
    the "noisy" batch norm of Santurkar et al. 2018 (section 2.2), who draw from sample to sample,
    too, and behind the gain. Here all tokens of an update move alike, on all processes: it is
    drift, the internal covariate shift of Ioffe and Szegedy 2015, and nothing else.

    A norm that nobody told of a step does not move.

    Raises:
        ValueError: `noise_shift` is below 0 or `noise_scale` below 1.
    """

    drift_scale: Tensor
    drift_shift: Tensor

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
        unbiased: bool,
        noise_shift: float,
        noise_scale: float,
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
            unbiased=unbiased,
            ghost=ghost,
        )
        if noise_shift < 0 or noise_scale < 1:
            raise ValueError(
                f"norm.noise_shift={noise_shift} must be at least 0, "
                f"norm.noise_scale={noise_scale} at least 1"
            )
        self.noise_shift, self.noise_scale = noise_shift, noise_scale
        self.register_buffer("drift_scale", torch.ones(dim), persistent=False)
        self.register_buffer("drift_shift", torch.zeros(dim), persistent=False)
        self._seed = 0

    def initialize(self, generator: torch.Generator) -> None:
        """Draw where this place's own noise begins."""
        self._seed = int(torch.randint(2**62, (), generator=generator))

    def begin_step(self, step: int, total: int | None) -> None:
        """Draw the drift of a step, which is the same however a run came to it."""
        draw = torch.Generator().manual_seed(self._seed + step)
        shift, scale = torch.rand(2, self.dim, generator=draw)
        self.drift_shift.copy_(self.noise_shift * (2 * shift - 1))
        self.drift_scale.copy_(1 + (self.noise_scale - 1) * scale)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` by the statistics of the batch, moved, or by the running ones."""
        y = super().forward(x, stream)
        if not self.training:
            return y
        shift = torch.addcmul(self.bias * (1 - self.drift_scale), self.weight, self.drift_shift)
        return torch.addcmul(shift, y, self.drift_scale).to(y.dtype)
