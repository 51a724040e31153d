"""RepBN and PRepBN (Guo et al. 2024, SLAB): batch norm plus the token itself."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import during, fix_at_zero, learn
from normlab.norms.batch import BatchNorm
from normlab.norms.layer import LayerNorm
from normlab.norms.moments import widen
from normlab.norms.ramp import Clock, Ramp
from normlab.norms.tokens import ALL, Tokens


@dataclass(eq=False, repr=False, kw_only=True)
class RepBatchNorm(BatchNorm):
    """RepBN: `BN(x) + alpha x` with a learned scalar alpha (Guo et al. 2024, equation 5).

    BN is `BatchNorm.formula` (`batch.py`) with gain and shift.
    """

    alpha: Any  # the initial value, replaced by the parameter

    def __post_init__(self) -> None:
        super().__post_init__()
        self.alpha = nn.Parameter(torch.tensor([float(self.alpha)]))

    @torch.no_grad()
    def start_gain(self, value: float, *, key: str) -> None:
        super().start_gain(value, key=key)
        self.alpha.mul_(value)

    def output(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.addcmul(self.gain_and_shift(z), x, self.alpha.to(x))

    def batch_divisor(self) -> Tensor | None:
        return None  # the term `alpha x` is not divided by a deviation


@dataclass(eq=False, repr=False, kw_only=True)
class ProgressiveRepBatchNorm(RepBatchNorm):
    """PRepBN: `lambda LN(x) + (1 - lambda) RepBN(x)` in training (equation 4), RepBN at inference.

    LN is `LayerNorm.formula` (`layer.py`), and the BN in RepBN is `BatchNorm.formula` (`batch.py`);
    each has a gain and a shift of its own. During the warm-up, training is pure layer norm and does
    not update the running statistics. After it, lambda falls linearly from `start` to 0.
    """

    once_an_update: ClassVar[bool] = True
    same_in_training: ClassVar[bool] = False

    start: float
    blend_share: float
    blend_steps: int | None
    warmup_share: float
    warmup_steps: int | None
    token_weight: Tensor = field(init=False)
    token_bias: Tensor = field(init=False)
    blend: Float[Tensor, ""] = field(init=False)  # lambda at this step

    def __post_init__(self) -> None:
        super().__post_init__()
        warmup = Ramp("warmup", self.warmup_share, self.warmup_steps)
        self.ramps = (warmup, Ramp("blend", self.blend_share, self.blend_steps))
        self.register_buffer("blend", torch.tensor(float(self.start)), persistent=False)
        learn(self, "token_weight", torch.ones(self.dim), learned=bool(self.affine))
        learn(self, "token_bias", torch.zeros(self.dim), learned=self.affine is True)
        self.layer_norm = LayerNorm(self.dim, affine=False, eps=self.eps).normalized

    def forgo_shift(self) -> None:
        super().forgo_shift()
        fix_at_zero(self, "token_bias")

    def start_gain(self, value: float, *, key: str) -> None:
        super().start_gain(value, key=key)
        nn.init.constant_(self.token_weight, value)

    def last_steps(self, total: int | None) -> dict[str, int]:
        warmup, blend = super().last_steps(total).values()
        return {"warmup": warmup, "blend": warmup + blend}

    def begin_step(self, clock: Clock) -> None:
        super().begin_step(clock)
        self.blend.fill_(self.blend_at(clock))

    def blend_at(self, clock: Clock) -> float:
        """Return lambda at a step. It is 1 in the warm-up, and `start` outside a run."""
        if clock.step == 0:
            return self.start
        warmup, last = self.last_steps(clock.total).values()
        if clock.step <= warmup:
            return 1.0
        return self.start * max(last - clock.step + 1, 0) / max(last - warmup, 1)

    def of_tokens(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        """Return layer norm's output, with its own gain and shift."""
        weight, bias = self.token_weight.to(x), self.token_bias.to(x)
        return (self.layer_norm(x) * weight).add_(bias)

    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens = ALL) -> Float[Tensor, "B P D"]:
        if self.regime == "train" and self.phases.get("warmup", False):
            return self.of_tokens(*widen(x)).to(x.dtype)
        return super().forward(x, tokens)

    def output(self, z: Tensor, x: Tensor) -> Tensor:
        """Return RepBN's output or, in training, its blend with layer norm's output."""
        y = super().output(z, x)
        if self.regime == "running" or self.start == 0 or not during(self, "blend"):
            return y
        return torch.lerp(y, self.of_tokens(x), self.blend.to(y))
