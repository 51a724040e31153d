"""RBN: batch norm with a price on the distance of batch from running statistics (Wang et al. 2022).

The paper's penalty draws a batch's mean and deviation towards the running ones, so that inference
finds what training had.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.distributed import world
from normlab.norms.base import EvalStats, Stream, uncompiled
from normlab.norms.batch import BatchNorm, Padding
from normlab.norms.ghost import Ghost
from normlab.norms.moments import Moments, Pooling, Weights, moments_with_gradient, widen
from normlab.norms.penalties import PENALTIES, Penalty, Statistics


class RegularizedBatchNorm(BatchNorm):
    """Batch norm over sqrt(max(var, eps)), and a penalty on the last training batch.

    With mu, sigma^2 the running statistics, which the batch has entered and through which no
    gradient flows, and sums over features, `diff` is

        penalty_mean sum (mu_B - mu)^2 + penalty_var sum |sigma_B^2 - sigma^2|

    and `normlab.norms.penalties` has the others. It is added to the loss summed over the tokens of
    a micro-batch, once, whatever the tokens. The running variance is the biased one. Because the
    batch enters first, the distances are 1 - momentum of those to the statistics before it.
    """

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
        penalty: Penalty,
        penalty_mean: float,
        penalty_var: float,
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
        self.terms = PENALTIES[penalty]
        self.penalty_mean = penalty_mean
        self.penalty_var = penalty_var
        self._batch: Moments | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the moments of the batch: what is copied has not seen it."""
        return {**vars(self), "_batch": None}

    @uncompiled
    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` by the statistics of the batch, or by the running ones."""
        return super().forward(x, stream)

    def standardize(
        self, x: Float[Tensor, "B P D"], weights: Weights, pooling: Pooling
    ) -> tuple[Float[Tensor, "B P D"], Moments]:
        """Return `x` by the statistics of the batch, and these."""
        wide, weight, bias = widen(x, self.weight, self.bias)
        found = moments_with_gradient(wide, weights, pooling)
        if self.training and found.mean.requires_grad:
            self._batch = found
        z = (wide - found.mean) * self.inverse(found.var)
        y = torch.addcmul(bias, z, weight) * weights.sums.to(z)
        return y.to(x.dtype), Moments(*(table.detach() for table in found))

    def inverse(self, var: Tensor) -> Tensor:
        """Return what values are multiplied by: eps is the least variance."""
        return var.clamp(min=self.eps).rsqrt()

    def penalty(self) -> Float[Tensor, ""] | None:
        """Return the penalty on the last training batch, or on its ghost batches; it is given once.

        Processes that share a batch's statistics share the penalty.
        """
        found, self._batch = self._batch, None
        if found is None or not (self.penalty_mean or self.penalty_var):
            return None
        mean, var = (moment.to(found.mean) for moment in self.running_moments())
        batch = Statistics(found.mean, found.var, self.eps)
        by_mean, by_var = self.terms(batch, Statistics(mean, var, self.eps))
        total = self.penalty_mean * by_mean + self.penalty_var * by_var
        return total / world().size if self.sync and self.ghosts is None else total
