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

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity

from normlab.distributed import world
from normlab.norms.base import uncompiled
from normlab.norms.batch import BatchNorm
from normlab.norms.pool import Moments

Penalty = Literal["diff", "diff2", "reldiff", "mag", "reldiffnorm", "reldiffcosine", "symkl"]
Terms = tuple[Tensor, Tensor]


class Statistics(NamedTuple):
    """Mean and variance of batches, or the running ones; `eps` is the least variance."""

    mean: Float[Tensor, "*G D"]
    var: Float[Tensor, "*G D"]
    eps: float

    @property
    def deviation(self) -> Tensor:
        """The standard deviation."""
        return self.var.clamp(min=self.eps).sqrt()


def _diff(batch: Statistics, running: Statistics) -> Terms:
    return _squares(batch.mean - running.mean), (batch.var - running.var).abs().sum()


def _diff2(batch: Statistics, running: Statistics) -> Terms:
    by_var = _squares(batch.deviation - running.deviation)
    return _squares(batch.mean - running.mean), by_var


def _reldiff(batch: Statistics, running: Statistics) -> Terms:
    by_mean = _squares((batch.mean - running.mean) / running.deviation)
    return by_mean, _squares(1 - batch.deviation / running.deviation)


def _mag(batch: Statistics, running: Statistics) -> Terms:
    return _squares(batch.mean), batch.var.abs().sum()


def _reldiffnorm(batch: Statistics, running: Statistics) -> Terms:
    by_mean, by_var = _diff(batch, running)
    return by_mean / _squares(running.mean), by_var / running.var.norm(p=1)


def _reldiffcosine(batch: Statistics, running: Statistics) -> Terms:
    pairs = (batch.mean, running.mean), (batch.var, running.var)
    by_mean, by_var = (-cosine_similarity(a, b, dim=-1, eps=0.0).sum() for a, b in pairs)
    return by_mean, by_var


def _symkl(batch: Statistics, running: Statistics) -> Terms:
    ours, theirs = batch.var + batch.eps, running.var + running.eps
    by_mean = (batch.mean - running.mean).square() * (1 / ours + 1 / theirs)
    total = (by_mean + running.var / ours + batch.var / theirs).sum()
    return total, total.new_zeros(())


def _squares(x: Tensor) -> Tensor:
    return x.square().sum()


PENALTIES: dict[Penalty, Callable[[Statistics, Statistics], Terms]] = {
    "diff": _diff,
    "diff2": _diff2,
    "reldiff": _reldiff,
    "mag": _mag,
    "reldiffnorm": _reldiffnorm,
    "reldiffcosine": _reldiffcosine,
    "symkl": _symkl,
}


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
        if self.training and found.mean.requires_grad:
            self.extra_loss = self.price(found)

    def price(self, batch: Moments) -> Float[Tensor, ""] | None:
        """Return the penalty on a batch that has entered the running statistics."""
        if not (self.penalty_mean or self.penalty_var):
            return None
        mean, var = (moment.to(batch.mean).clone() for moment in self.running_moments())
        by_mean, by_var = PENALTIES[self.penalty](
            Statistics(batch.mean, batch.var, self.eps), Statistics(mean, var, self.eps)
        )
        total = self.penalty_mean * by_mean + self.penalty_var * by_var
        return total / world().size if self.sync and self.ghost is None else total
