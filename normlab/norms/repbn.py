"""RepBN and PRepBN (Guo et al. 2024, SLAB): batch norm plus the token itself."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import uncompiled
from normlab.norms.batch import BatchNorm
from normlab.norms.pool import ALL, Grouped, Groups, Moments, Stream, widen


@dataclass(eq=False, repr=False, kw_only=True)
class RepBatchNorm(BatchNorm):
    """RepBN: `BN(x) + alpha x` with one learned alpha (equation 5)."""

    alpha: Any  # the initial value, replaced by the parameter

    def __post_init__(self) -> None:
        super().__post_init__()
        self.alpha = nn.Parameter(torch.tensor([float(self.alpha)]))

    @torch.no_grad()
    def start_gain(self, value: float, *, key: str) -> None:
        super().start_gain(value, key=key)
        self.alpha.mul_(value)

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

    def forgo_shift(self) -> None:
        super().forgo_shift()
        self._fix_at_zero("token_bias")

    def start_gain(self, value: float, *, key: str) -> None:
        super().start_gain(value, key=key)
        nn.init.constant_(self.token_weight, value)

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
