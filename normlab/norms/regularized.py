"""RBN: batch norm that penalizes distance from the running statistics (Wang et al. 2022).

The penalty draws a batch's mean and deviation towards the running ones, so that inference finds
what training had. A batch's penalty has a term of means and one of variances, each with a weight of
its own; mu and sigma are the running statistics, sums are over features. The paper has the first
two, the others are of the authors' code.

    diff             sum (mu_B - mu)^2                  sum |sigma_B^2 - sigma^2|
    diff2            sum (mu_B - mu)^2                  sum (sigma_B - sigma)^2
    reldiff          sum ((mu_B - mu) / sigma)^2        sum (1 - sigma_B / sigma)^2
    mag              sum mu_B^2                         sum sigma_B^2
    reldiffnorm      sum ((mu_B - mu) / ||mu||)^2       sum |sigma_B^2 - sigma^2| / sum sigma^2
    reldiffcosine    -cos(mu_B, mu)                     -cos(sigma_B^2, sigma^2)
    symkl            sum ((mu_B - mu)^2 (1 / sigma_B^2 + 1 / sigma^2)
                          + sigma^2 / sigma_B^2 + sigma_B^2 / sigma^2)        0
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity

from normlab.norms.base import uncompiled
from normlab.norms.batch import BatchNorm
from normlab.norms.pool import Moments
from normlab.norms.ranks import world

Penalty = Literal["diff", "diff2", "reldiff", "mag", "reldiffnorm", "reldiffcosine", "symkl"]


def terms(
    penalty: Penalty,
    batch: tuple[Tensor, Tensor],
    running: tuple[Tensor, Tensor],
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Return a penalty's term of means and its term of variances, not yet summed over features.

    `batch` and `running` are a mean and a variance each; `eps` is the least variance.
    """
    (m, v), (mu, s) = batch, running

    def deviation(var: Tensor) -> Tensor:
        return var.clamp(min=eps).sqrt()

    match penalty:
        case "diff":
            return (m - mu).square(), (v - s).abs()
        case "diff2":
            return (m - mu).square(), (deviation(v) - deviation(s)).square()
        case "reldiff":
            return ((m - mu) / deviation(s)).square(), (1 - deviation(v) / deviation(s)).square()
        case "mag":
            return m.square(), v
        case "reldiffnorm":
            return (m - mu).square() / mu.square().sum(), (v - s).abs() / s.sum()
        case "reldiffcosine":
            return -cosine_similarity(m, mu, -1, eps=0.0), -cosine_similarity(v, s, -1, eps=0.0)
        case "symkl":
            p, q = v + eps, s + eps
            return (m - mu).square() * (1 / p + 1 / q) + s / p + v / q, v.new_zeros(())


@dataclass(eq=False, repr=False, kw_only=True)
class RegularizedBatchNorm(BatchNorm):
    """Batch norm over sqrt(max(var, eps)), and a penalty on each training batch.

    It is added once to the loss summed over the tokens of a micro-batch, whatever their number. The
    running variance is the biased one. The batch enters the running statistics first, so that
    the distances are 1 - momentum of those from the statistics before it. Processes that share a
    batch's statistics share its penalty; ghost batches each have their own.
    """

    kernel: ClassVar[bool] = False

    penalty: Penalty
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
        by_mean, by_var = terms(self.penalty, (batch.mean, batch.var), (mean, var), self.eps)
        total = self.penalty_mean * by_mean.sum() + self.penalty_var * by_var.sum()
        return total / world().size if self.sync and self.ghost is None else total
