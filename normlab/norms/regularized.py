"""RBN: batch norm that penalizes distance from the running statistics (Wang et al. 2022).

The penalty pulls a batch's mean and deviation towards the running ones, so that inference sees the
same statistics as training. With mu and sigma the running statistics, and sums over features, it is
`penalty_mean` times the first term plus `penalty_var` times the second. The first two penalties are
the paper's, the others are only in the authors' code.

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


@dataclass(eq=False, repr=False, kw_only=True)
class RegularizedBatchNorm(BatchNorm):
    """Batch norm that divides by sqrt(max(var, eps)) and adds a penalty for each training batch.

    The penalty is added once to the loss summed over the tokens of a micro-batch, whatever their
    number. The running variance is the biased estimate. The batch enters the running statistics
    first, so its distances to them are 1 - momentum times those before the update. Processes that
    share batch statistics share one penalty; each ghost batch has its own.
    """

    kernel: ClassVar[bool] = False

    penalty: Literal["diff", "diff2", "reldiff", "mag", "reldiffnorm", "reldiffcosine", "symkl"]
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
        running = (moment.to(batch.mean).clone() for moment in self.running_moments())
        of_mean, of_var = self.terms(batch.mean, batch.var, *running)
        total = self.penalty_mean * of_mean.sum() + self.penalty_var * of_var.sum()
        return total if self.divided else total / world().size

    def terms(self, m: Tensor, v: Tensor, mu: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return both penalty terms, unsummed, from the batch's moments and the running ones."""
        ratio = self.inverse(var) / self.inverse(v)  # sigma_B / sigma
        match self.penalty:
            case "diff":
                return (m - mu).square(), (v - var).abs()
            case "diff2":
                apart = 1 / self.inverse(v) - 1 / self.inverse(var)
                return (m - mu).square(), apart.square()
            case "reldiff":
                return ((m - mu) * self.inverse(var)).square(), (1 - ratio).square()
            case "mag":
                return m.square(), v
            case "reldiffnorm":
                return (m - mu).square() / mu.square().sum(), (v - var).abs() / var.sum()
            case "reldiffcosine":
                return -cosine_similarity(m, mu, -1, eps=0), -cosine_similarity(v, var, -1, eps=0)
            case "symkl":
                p, q = v + self.eps, var + self.eps
                return (m - mu).square() * (1 / p + 1 / q) + var / p + v / q, v.new_zeros(())
