"""GPAS: pre-norm that scales down the stream after each addition, but not its gradient.

    y = h - silu(g) sg(h),  h = x + f(norm(x))

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout; g: a learned scalar.
    sg stops the gradient: y has the value (1 - silu(g)) h, and h gets the gradient of y.
    closing norm: one, as in pre-norm.
    at initialization: g = 0, which is pre-norm.

Source: Chen et al. 2025 ("GPAS: Accelerating Convergence of LLM Pretraining via Gradient-Preserving
Activation Scaling") and their code. In the code, a layer has one g; in the paper, each sub-layer
has one. They draw token embeddings with a standard deviation of sqrt(2/5); here, the model's `init`
decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, Norms, Place, Residual
from normlab.placements.pre import Pre, PreResidual


class GPASResidual(PreResidual):
    """`h - silu(gate) sg(h)`, where h = x + dropout(branch(norm(x))) and sg stops the gradient."""

    def __init__(self, norm: Norm, gate: nn.Parameter, dropout: float):
        super().__init__(norm, dropout)
        self.gate = gate

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        x = super().forward(x, tokens, branch)
        return x - F.silu(self.gate) * x.detach()


@dataclass(eq=False, kw_only=True)
class GPAS(Pre):
    """GPAS: pre-norm that scales down the stream, but not its gradient (Chen et al. 2025).

    With `shared`, the sub-layers of a layer share one gate.
    """

    drawing = """
        x ---+--> norm --> sub-layer --> dropout --> (+) --> h --> h - silu(g) sg(h) --> y
             |                                        |
             +----------------------------------------+
    """

    shared: bool

    def residuals(self, norms: Norms, dim: int, places: Sequence[Place]) -> Sequence[Residual]:
        gates = [nn.Parameter(torch.zeros(())) for _ in places]
        return [
            GPASResidual(
                norms.required(place.path, dim), gates[0] if self.shared else gate, self.dropout
            )
            for place, gate in zip(places, gates, strict=True)
        ]
