"""Repaired variants of batch norm: RBN, batch renormalization, RepBN and PRepBN.

RBN        penalizes batch statistics for differing from running ones (Wang et al. 2022)
BRN        keeps the training output close to the inference output (Ioffe 2017, algorithm 1)
RepBN      adds the token itself; PRepBN blends from layer norm to RepBN (Guo et al. 2024, SLAB)
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from normlab.norms.base import uncompiled
from normlab.norms.batch import BatchNorm
from normlab.norms.pool import ALL, Grouped, Groups, Moments, Stream, widen
from normlab.norms.ranks import world

_PLAIN = 1 / 8  # share of batch renorm's warm-up that is plain batch norm (5,000 of 40,000 steps)
_SHIFT = 1 / 2  # share of the warm-up in which `d_max` then grows (to step 25,000 of 40,000)


@dataclass(eq=False, repr=False, kw_only=True)
class RegularizedBatchNorm(BatchNorm):
    """Batch norm that divides by sqrt(max(var, eps)) and adds a penalty for each training batch.

    The penalty pulls the batch's mean and deviation towards the running ones, mu and sigma, so that
    inference sees the same statistics. It is the sum over features of `penalty_mean` times the
    first of two `terms` plus `penalty_var` times the second; for `diff`

        penalty_mean (mu_B - mu)^2 + penalty_var |sigma_B^2 - sigma^2|

    The paper has only diff and diff2; the authors' code has the others. The penalty is added once
    to the loss summed over a micro-batch. Running statistics are updated first, which shrinks the
    distances by a factor of 1 - momentum. Processes that share batch statistics share one penalty;
    each ghost batch has its own.
    """

    kernel: ClassVar[bool] = False

    penalty: Literal["diff", "diff2", "reldiff", "mag", "reldiffnorm", "reldiffcosine", "symkl"]
    penalty_mean: float
    penalty_var: float
    unbiased: bool = field(init=False, default=False)

    def inverse(self, var: Tensor) -> Tensor:
        return var.clamp(min=self.eps).rsqrt()

    forward = uncompiled(BatchNorm.forward)

    def see(self, groups: Moments, first: int = 0) -> None:
        super().see(groups, first)
        weighs = self.penalty_mean or self.penalty_var
        if weighs and self.training and groups.mean.requires_grad:
            running = (moment.to(groups.mean).clone() for moment in self.running_moments())
            of_mean, of_var = self.terms(groups.mean, groups.var, *running)
            total = self.penalty_mean * of_mean.sum() + self.penalty_var * of_var.sum()
            self.extra_loss = total if self.divided else total / world().size

    def terms(self, m: Tensor, v: Tensor, mu: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return both penalty terms per feature.

        `m` and `v` are the mean and variance of the batch, mu_B and sigma_B^2; `mu` and `var` are
        the running ones.
        """
        ratio = self.inverse(var) / self.inverse(v)  # sigma_B / sigma
        match self.penalty:
            case "diff":
                return (m - mu).square(), (v - var).abs()
            case "diff2":
                return (m - mu).square(), (1 / self.inverse(v) - 1 / self.inverse(var)).square()
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


@dataclass(eq=False, repr=False, kw_only=True)
class BatchRenorm(BatchNorm):
    """`(x - mu_B) / sigma_B r + d` in training, running statistics at inference.

        r = clip(sigma_B / sigma, 1 / r_max, r_max)    d = clip((mu_B - mu) / sigma, -d_max, d_max)

    are constants in the backward pass; mu and sigma are the running statistics before the batch.
    The bounds grow from 1 and 0 after an eighth of the warm-up; `r_max` is reached at its end,
    `d_max` after five eighths. The running statistic is a deviation; eps is added to deviations.
    """

    exact_gradient: ClassVar[bool] = False
    phases: ClassVar[tuple[str, ...]] = ("warmup",)
    once_an_update: ClassVar[bool] = True
    kernel: ClassVar[bool] = False

    r_max: float
    d_max: float
    warmup_share: float
    warmup_steps: int | None
    unbiased: bool = field(init=False, default=False)
    running_std: Tensor = field(init=False)

    def keep_rows(self, rows: int) -> None:
        self.register_buffer("running_mean", torch.zeros(rows, self.dim))
        self.register_buffer("running_std", torch.ones(rows, self.dim))

    forward = uncompiled(BatchNorm.forward)

    def formula(self, x: Grouped, m: Moments) -> Grouped:
        std, (r_max, d_max) = self.deviation(m.var), self.bounds
        mean, running = self.running_mean.to(std), self.running_std.to(std)
        r = (std.detach() / running).clamp(1 / r_max, r_max)
        d = ((m.mean.detach() - mean) / running).clamp(-d_max, d_max)
        return (x - m.mean) * (r / std) + d

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of `r` and `d` at this step."""
        step, total = self.clock
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

    def inverse(self, var: Tensor) -> Tensor:
        return var.rsqrt()  # eps is part of the running deviation

    def running_moments(self) -> tuple[Tensor, Tensor]:
        return self.running_mean, self.running_std.square()

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        self.running_mean[rows].lerp_(mean, share)
        self.running_std[rows].lerp_(self.deviation(var), share)


@dataclass(eq=False, repr=False, kw_only=True)
class RepBatchNorm(BatchNorm):
    """RepBN: `BN(x) + alpha x` with one learned alpha (equation 5)."""

    alpha: Any  # the initial value, replaced by the parameter

    def __post_init__(self) -> None:
        super().__post_init__()
        self.alpha = nn.Parameter(torch.tensor([float(self.alpha)]))

    def normalize(self, groups: Groups) -> tuple[Grouped, Moments]:
        y, moments = super().normalize(groups)
        return torch.addcmul(y, groups.x, self.alpha.to(y)), moments

    def by_running(self, x: Float[Tensor, "B P D"], rows: slice) -> Float[Tensor, "B P D"]:
        return torch.addcmul(super().by_running(x, rows), x, self.alpha.to(x))

    def batch_divisor(self) -> Tensor | None:
        return None  # the `alpha x` part is not divided by anything


@dataclass(eq=False, repr=False, kw_only=True)
class ProgressiveRepBatchNorm(RepBatchNorm):
    """PRepBN: `lambda LN(x) + (1 - lambda) RepBN(x)` in training (equation 4), RepBN at inference.

    During the warm-up, training is pure layer norm and does not update the running statistics; then
    lambda falls linearly from `start` to 0.
    """

    phases: ClassVar[tuple[str, ...]] = ("warmup", "blend")
    once_an_update: ClassVar[bool] = True

    start: float
    blend_share: float
    blend_steps: int | None
    warmup_share: float
    warmup_steps: int | None
    token_weight: Tensor = field(init=False)
    token_bias: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._affine("token_weight", torch.ones(self.dim), learned=bool(self.affine))
        self._affine("token_bias", torch.zeros(self.dim), learned=self.affine is True)

    def last_steps(self, total: int | None) -> dict[str, int]:
        found = super().last_steps(total)
        return {**found, "blend": found["warmup"] + found["blend"]}

    @property
    def blend(self) -> float:
        """Lambda at the current step: 1 in the warm-up, `start` outside a run."""
        step, total = self.clock
        if step == 0:
            return self.start
        warmup, last = self.last_steps(total).values()
        if step <= warmup:
            return 1.0
        return self.start * max(last - step + 1, 0) / max(last - warmup, 1)

    def tokens(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        """Return the layer norm of each token."""
        weight, bias = self.token_weight.to(x), self.token_bias.to(x)
        return F.layer_norm(x, (self.dim,), weight, bias, self.eps)

    @uncompiled
    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        if self.regime == "train" and self.clock.step and self.during("warmup"):
            return self.tokens(*widen(x)).to(x.dtype)
        return super().forward(x, stream)

    def normalize(self, groups: Groups) -> tuple[Grouped, Moments]:
        y, moments = super().normalize(groups)
        return torch.lerp(y, self.tokens(groups.x), self.blend) if self.blend else y, moments
