"""RBN: batch norm with a penalty on the distance to the running statistics (Wang et al. 2022)."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from normlab.distributed.process_group import world
from normlab.norms.batch import BatchNorm
from normlab.norms.moments import Moments


@dataclass(eq=False, repr=False, kw_only=True)
class RegularizedBatchNorm(BatchNorm):
    """`weight (x - mean) / sqrt(max(var, eps)) + bias`, and a penalty for each training batch.

    It is batch norm with eps in a different place, and its gradient is exact. The penalty
    (`loss_of`) pulls the batch's mean and deviation, mu_B and sigma_B, towards the running ones, mu
    and sigma, so that training and inference use similar statistics. With `penalty=diff`, it is the
    sum over features of

        penalty_mean (mu_B - mu)^2 + penalty_var |sigma_B^2 - sigma^2|

    `terms` has both terms for the other penalties. The paper has only diff and diff2; the others
    are from the authors' code. The penalty is added once to the summed loss of a micro-batch.
    Running statistics are updated first, which shrinks the distances by a factor of 1 - momentum.
    Processes that share batch statistics share one penalty; each ghost batch has its own.
    """

    penalty: Literal["diff", "diff2", "reldiff", "mag", "reldiffnorm", "reldiffcosine", "symkl"]
    penalty_mean: float
    penalty_var: float
    unbiased: bool = field(init=False, default=False)

    def formula(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return (x - mean) * var.clamp(min=self.eps).rsqrt()

    def loss_of(self, groups: Moments) -> Tensor | None:
        """Return the penalty, or None in evaluation, without gradients, or if its weights are 0."""
        weighs = self.penalty_mean or self.penalty_var
        if not (weighs and self.training and groups.mean.requires_grad):
            return None
        running = (moment.to(groups.mean).clone() for moment in self.running_moments())
        of_mean, of_var = self.terms(groups.mean, groups.var, *running)
        total = self.penalty_mean * of_mean.sum() + self.penalty_var * of_var.sum()
        return total if self.pool.divided else total / world().size

    def terms(self, m: Tensor, v: Tensor, mu: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return both terms of the penalty, per feature.

        `m` and `v` are the mean and variance of the batch, mu_B and sigma_B^2; `mu` and `var` are
        the running mean and variance.
        """
        sigma_batch, sigma = (each.clamp(min=self.eps).sqrt() for each in (v, var))
        match self.penalty:
            case "diff":
                return (m - mu).square(), (v - var).abs()
            case "diff2":
                return (m - mu).square(), (sigma_batch - sigma).square()
            case "reldiff":
                return ((m - mu) / sigma).square(), (1 - sigma_batch / sigma).square()
            case "mag":
                return m.square(), v
            case "reldiffnorm":
                tiny = torch.finfo(mu.dtype).tiny  # a mean of 0 has no relative distance
                of_mean = (m - mu).square() / mu.square().sum().clamp(min=tiny)
                return of_mean, (v - var).abs() / var.sum()
            case "reldiffcosine":
                return -cosine(m, mu), -cosine(v, var)
            case "symkl":
                p, q = v + self.eps, var + self.eps
                return (m - mu).square() * (1 / p + 1 / q) + var / p + v / q, v.new_zeros(())


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosine along the last axis. If a vector is 0, it is 0 and has no gradient."""
    none = (a.square().sum(-1) == 0) | (b.square().sum(-1) == 0)
    return cosine_similarity(a.masked_fill(none[..., None], 1.0), b, -1, eps=0).masked_fill(none, 0)
