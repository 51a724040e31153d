"""RMS norms whose gain depends on the token: SeeDNorm and GatedNorm.

Neither paper has public code. The formulas are those on which reviews and ports agree.
"""

from dataclasses import dataclass, field
from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from normlab.norms.base import learn, require_divisor
from normlab.norms.layer import TokenNorm
from normlab.norms.rms import RMSNorm


@dataclass(eq=False, repr=False, kw_only=True)
class SeeDNorm(TokenNorm):
    """`(weight + alpha tanh(x . beta)) x / sqrt(mean(x^2) + eps)` (Cai et al. 2025).

    weight, alpha and beta have one value per feature. Alpha starts at 1 and beta at 0, so the norm
    starts as RMS norm. The features form `groups` contiguous slices (the paper's heads), each with
    a dot product of its own. The paper also applies weight decay to alpha and beta. The division is
    `RMSNorm.formula` (`rms.py`).
    """

    eps: float
    groups: int
    alpha: Tensor = field(init=False)
    beta: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisor(self.groups, self.dim)
        self.forgo_shift()
        learn(self, "alpha", torch.ones(self.dim), learned=True)
        learn(self, "beta", torch.zeros(self.dim), learned=True)
        self.rms_norm = RMSNorm(self.dim, affine=False, eps=self.eps).normalized

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        return self.rms_norm(x)

    def output(self, z: Tensor, x: Tensor) -> Tensor:
        """Return `(weight + alpha tanh(x . beta)) z`."""
        weight, alpha, beta = (each.to(z) for each in (self.weight, self.alpha, self.beta))
        products = (x * beta).unflatten(-1, (self.groups, -1)).sum(-1)
        moved = products.tanh().repeat_interleave(self.dim // self.groups, dim=-1)
        return torch.addcmul(weight, alpha, moved) * z


@dataclass(eq=False, repr=False, kw_only=True)
class GatedNorm(TokenNorm):
    """`factor y sigmoid(up silu(down y))`, with y = `weight x / sqrt(mean(x^2) + eps)`.

    Source: Qiu et al. 2026. The matrices `down` [rank, D] and `up` [D, rank] are initialized like
    torch's linear layers, so the gate starts near 1/2, and with a factor of 2 the norm starts near
    RMS norm. A run draws the matrices from its own seed; a norm built outside a run uses seed 0.
    The division in y is `RMSNorm.formula` (`rms.py`).
    """

    eps: float
    rank: Annotated[int, Meta(gt=0)]
    factor: Annotated[float, Meta(gt=0)]
    down: Tensor = field(init=False)
    up: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.forgo_shift()
        learn(self, "down", torch.empty(self.rank, self.dim), learned=True)
        learn(self, "up", torch.empty(self.dim, self.rank), learned=True)
        self.initialize(torch.Generator().manual_seed(0))
        self.rms_norm = RMSNorm(self.dim, affine=False, eps=self.eps).normalized

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw both matrices from U(-b, b), with b = 1 / sqrt(number of columns)."""
        for table in (self.down, self.up):
            bound = table.shape[1] ** -0.5
            table.copy_(torch.empty(table.shape).uniform_(-bound, bound, generator=generator))

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        return self.rms_norm(x)

    def output(self, z: Tensor, x: Tensor) -> Tensor:
        """Return `factor y sigmoid(up silu(down y))`, with y = `weight z`."""
        weight, down, up = (each.to(z) for each in (self.weight, self.down, self.up))
        y = weight * z
        gate = F.linear(F.silu(F.linear(y, down)), up).sigmoid()
        return self.factor * gate * y
