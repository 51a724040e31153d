"""RBN: batch norm that penalizes distance from the running statistics (Wang et al. 2022).

The penalty draws a batch's mean and deviation towards the running ones, so that inference finds
what training had. With mu and sigma the running statistics, summed over features, it is

    diff     penalty_mean sum (mu_B - mu)^2 + penalty_var sum |sigma_B^2 - sigma^2|
    diff2    penalty_mean sum (mu_B - mu)^2 + penalty_var sum (sigma_B - sigma)^2
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import uncompiled
from normlab.norms.batch import BatchNorm
from normlab.norms.pool import Moments
from normlab.norms.ranks import world


@dataclass(eq=False, repr=False, kw_only=True)
class RegularizedBatchNorm(BatchNorm):
    """Batch norm over sqrt(max(var, eps)), and a penalty on each training batch.

    It is added once to the loss summed over the tokens of a micro-batch, whatever their number. The
    running variance is the biased one. The batch enters the running statistics first, so that
    the distances are 1 - momentum of those from the statistics before it. Processes that share a
    batch's statistics share its penalty; ghost batches each have their own.
    """

    kernel: ClassVar[bool] = False

    penalty: Literal["diff", "diff2"]
    penalty_mean: float
    penalty_var: float
    unbiased: bool = field(init=False, default=False)

    def inverse(self, var: Tensor) -> Tensor:
        return var.clamp(min=self.eps).rsqrt()

    forward = uncompiled(BatchNorm.forward)

    def see_groups(self, found: Moments, first: int = 0) -> None:
        super().see_groups(found, first)
        weighs = self.penalty_mean or self.penalty_var
        if weighs and self.training and found.mean.requires_grad:
            self.extra_loss = self.price(found)

    def price(self, batch: Moments) -> Float[Tensor, ""]:
        """Return the penalty on a batch that has entered the running statistics."""
        mean, var = (moment.to(batch.mean).clone() for moment in self.running_moments())
        if self.penalty == "diff":
            of_var = (batch.var - var).abs()
        else:
            of_var = (1 / self.inverse(batch.var) - 1 / self.inverse(var)).square()
        of_mean = (batch.mean - mean).square()
        total = self.penalty_mean * of_mean.sum() + self.penalty_var * of_var.sum()
        return total / world().size if self.sync and self.ghost is None else total
