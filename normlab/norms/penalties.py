"""What RBN charges for a batch whose statistics are not the running ones (Wang et al. 2022).

Each function returns a term of means and one of variances, which their own weights multiply; mu and
sigma are the running statistics, sums are over features. The paper has the first two, the others
are of the authors' code.

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
from typing import Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor

Penalty = Literal["diff", "diff2", "reldiff", "mag", "reldiffnorm", "reldiffcosine", "symkl"]


class Statistics(NamedTuple):
    """Mean and variance of batches or the running ones; `eps` is the least variance."""

    mean: Float[Tensor, "*G D"]
    var: Float[Tensor, "*G D"]
    eps: float

    @property
    def deviation(self) -> Tensor:
        """The standard deviation."""
        return self.var.clamp(min=self.eps).sqrt()


Terms = tuple[Tensor, Tensor]


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
    return -_cosine(batch.mean, running.mean), -_cosine(batch.var, running.var)


def _symkl(batch: Statistics, running: Statistics) -> Terms:
    ours, theirs = batch.var + batch.eps, running.var + running.eps
    by_mean = (batch.mean - running.mean).square() * (1 / ours + 1 / theirs)
    total = (by_mean + running.var / ours + batch.var / theirs).sum()
    return total, total.new_zeros(())


def _squares(x: Tensor) -> Tensor:
    return x.square().sum()


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return ((a * b).sum(-1) / a.norm(dim=-1) / b.norm(dim=-1)).sum()


PENALTIES: dict[Penalty, Callable[[Statistics, Statistics], Terms]] = {
    "diff": _diff,
    "diff2": _diff2,
    "reldiff": _reldiff,
    "mag": _mag,
    "reldiffnorm": _reldiffnorm,
    "reldiffcosine": _reldiffcosine,
    "symkl": _symkl,
}
