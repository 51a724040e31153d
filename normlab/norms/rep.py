"""RepBN and PRepBN: batch norm beside the token itself, reached from layer norm (Guo et al. 2024).

SLAB trains with layer norm first and ends in a norm that is a fixed scale and shift in inference,
and so folds into the products beside it.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import EvalStats, Stream, uncompiled
from normlab.norms.batch import BatchNorm, Padding
from normlab.norms.ghost import Ghost
from normlab.norms.moments import widen
from normlab.norms.warmup import WarmupNorm


class RepBatchNorm(BatchNorm):
    """RepBN: `BN(x) + alpha x` with one learned alpha (equation 5)."""

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
        alpha: float,
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
        self.alpha = nn.Parameter(torch.tensor([alpha]))

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` by the statistics of the batch or the running ones, and alpha times `x`."""
        wide, alpha = widen(x, self.alpha)
        return torch.addcmul(super().forward(wide, stream), wide, alpha).to(x.dtype)

    def batch_divisor(self) -> Tensor | None:
        """Return None: a part of `x` is divided by nothing."""
        return None

    def fixed_map(self) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]] | None:
        """Return the scale and shift of batch norm, with alpha in the scale."""
        if (fixed := super().fixed_map()) is None:
            return None
        scale, shift = fixed
        return scale + self.alpha.detach().double(), shift


class ProgressiveRepBatchNorm(WarmupNorm, RepBatchNorm):
    """PRepBN: `lambda LN(x) + (1 - lambda) RepBN(x)` in training (equation 4), RepBN in evaluation.

    In the warm-up it is layer norm alone, and batch norm's statistics see nothing; then lambda goes
    from `start` to 0 in equal parts. While lambda is above 0 evaluation is of another function than
    training, by design: a run reports the blend beside it (`blended`).

    Raises ValueError where `start` or `blend_share` is not in 0 to 1.
    """

    counters: ClassVar[tuple[str, ...]] = (*WarmupNorm.counters, "decay")
    decay: int
    token_weight: Tensor
    token_bias: Tensor

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
        alpha: float,
        start: float,
        blend_share: float,
        blend_steps: int | None,
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
            unbiased=unbiased,
            alpha=alpha,
            ghost=ghost,
        )
        for name, share in (("start", start), ("blend_share", blend_share)):
            if not 0 <= share <= 1:
                raise ValueError(f"norm.{name}={share}: must be in 0 to 1")
        self.start = start
        self.blend_share, self.blend_steps = blend_share, blend_steps
        self.decay = 0
        self.warm_up(warmup_share, warmup_steps)
        self._affine("token_weight", torch.ones(dim), learned=affine)
        self._affine("token_bias", torch.zeros(dim), learned=affine)

    def milestones(self, total: int | None) -> dict[str, int]:
        """Return the last steps of layer norm alone, and of the blend."""
        found = super().milestones(total)
        steps = self.steps("blend", self.blend_share, self.blend_steps, total)
        return {**found, "blend": found["warmup"] + steps}

    def begin_step(self, step: int, total: int | None) -> None:
        """Take notice of a step of `total`."""
        super().begin_step(step, total)
        self.decay = self.milestones(total)["blend"] - self.warmup

    @property
    def tokens_alone(self) -> bool:
        """Whether the step is one of layer norm alone."""
        return 0 < self.step <= self.warmup

    @property
    def blend(self) -> float:
        """The lambda of the step: 1 in the warm-up."""
        if self.tokens_alone:
            return 1.0
        if self.step == 0:  # of no run
            return self.start
        left = self.decay - (self.step - self.warmup - 1)
        return self.start * max(left, 0) / max(self.decay, 1)

    @uncompiled
    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return the blend where training is repeated or it is asked for, else RepBN."""
        share = self.blend if self.by_batch or self.blended else 0.0
        if share == 0:
            return super().forward(x, stream)
        wide, weight, bias = widen(x, self.token_weight, self.token_bias)
        tokens = F.layer_norm(wide, (self.dim,), weight, bias, self.eps)
        if self.training and self.tokens_alone:
            return tokens.to(x.dtype)
        return torch.lerp(super().forward(wide, stream), tokens, share).to(x.dtype)
