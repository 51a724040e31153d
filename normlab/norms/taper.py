"""TaperNorm: RMS norm that turns into a fixed, foldable scale during training.

    warm-up   RMS norm, x weight / r, while c is estimated
    taper     a blend whose share g of RMS norm falls from 1 to 0 along half a cosine; `late` starts
              as a copy of weight
    then      x c late

    c = E[|weight x|^2 / r] / E[|weight x|^2],  which minimizes E|weight x / r - c weight x|^2

Source: Kanavalau et al. 2026 ("Gated Removal of Normalization in Transformers Enables Stable
Training and Efficient Inference"), as described in secondary sources; there is no public code. The
paper keeps RMS norm as the model's last norm. Without this norm, and without a penalty on the scale
of the last hidden states, logits can grow without bound.
"""

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from normlab.distributed.process_group import sum_over_ranks
from normlab.norms.base import learn
from normlab.norms.layer import TokenNorm
from normlab.norms.moments import widen
from normlab.norms.ramp import Clock, Ramp
from normlab.norms.tokens import ALL, Tokens


@dataclass(eq=False, repr=False, kw_only=True)
class TaperNorm(TokenNorm):
    """`(g weight / r + (1 - g) c late) x`, where g falls from 1 to 0 and r = sqrt(mean(x^2) + eps).

    `weight` and `late` have one value per feature; g and c are scalars. c is the ratio of two
    exponential averages over the real tokens of the warm-up's micro-batches. The warm-up has at
    least one step. Outside a run, g does not change.
    """

    foldable: ClassVar[bool] = True
    belongs_to_run: ClassVar[tuple[str, ...]] = ("gate", "energies")  # see `start_from`

    eps: float
    momentum: float
    warmup_share: float
    warmup_steps: int | None
    taper_share: Annotated[float, Meta(ge=0, le=1)]
    taper_steps: Annotated[int, Meta(ge=0)] | None
    late: Tensor = field(init=False)
    gate: Tensor = field(init=False)
    energies: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.forgo_shift()
        warmup = Ramp("warmup", self.warmup_share, self.warmup_steps)
        self.ramps = (warmup, Ramp("taper", self.taper_share, self.taper_steps))
        learn(self, "late", torch.ones(self.dim), learned=bool(self.affine))
        self.register_buffer("gate", torch.ones(()))
        self.register_buffer("energies", torch.zeros(2))

    def last_steps(self, total: int | None) -> dict[str, int]:
        warmup, taper = super().last_steps(total).values()
        return {"warmup": max(1, warmup), "taper": max(1, warmup) + taper}

    @property
    def factor(self) -> Float[Tensor, ""]:
        """The constant c, which is 1 before it is estimated."""
        over_root, energy = self.energies
        return torch.where(energy > 0, over_root / energy, 1.0)

    @torch.no_grad()
    def begin_step(self, clock: Clock) -> None:
        """Set g for this step. After the warm-up, copy `weight` to `late`."""
        super().begin_step(clock)
        if clock.step:
            warmup, last = self.last_steps(clock.total).values()
            past = min(max(clock.step - warmup, 0) / max(last - warmup, 1), 1.0)
            self.gate.fill_((1 + math.cos(math.pi * past)) / 2)
            if clock.step == warmup + 1:
                self.late.copy_(self.weight)

    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens = ALL) -> Float[Tensor, "B P D"]:
        if self.training and self.phases.get("warmup", False):
            (wide,) = widen(x)
            self.measure(wide, tokens.real(x))
        return super().forward(x, tokens)

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        gains = (self.gate, self.weight, self.factor, self.late)
        g, weight, c, late = (each.to(x) for each in gains)
        return x * (g * self.inverse(x) * weight + (1 - g) * c * late)

    def output(self, z: Tensor, x: Tensor) -> Tensor:
        """Return z, because the formula already includes the gains."""
        return z

    def inverse(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ 1"]:
        """Return 1 / r of each token."""
        return (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()

    @torch.no_grad()
    def measure(self, x: Float[Tensor, "B P D"], real: Bool[Tensor, "B P"]) -> None:
        """Move both averages that define c towards the averages over a micro-batch."""
        energy = (x * self.weight.to(x)).square().sum(-1)
        over_root = energy * self.inverse(x).squeeze(-1)
        values = torch.stack([over_root, energy, torch.ones_like(energy)])
        sums = sum_over_ranks(values.where(real, 0.0).sum((1, 2)))
        self.energies.lerp_((sums[:2] / sums[2].clamp(min=1)).to(self.energies), self.momentum)
