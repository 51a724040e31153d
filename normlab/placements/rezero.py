"""ReZero: no norm; the branch is scaled by a learned gain that starts at 0.

    y = x + a f(x)

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout; a: a learned scalar.
    closing norm: none.
    at initialization: a = 0, so every layer is the identity.

Source: Bachlechner et al. 2021 ("ReZero is All You Need"). In their code, all sub-layers of a layer
share one gain. With one gain per sub-layer, this is SkipInit (De and Smith 2020).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, Norms, Place, Placement, Residual


class ReZeroResidual(Residual):
    """`x + gain * dropout(branch(x))`."""

    def __init__(self, gain: nn.Parameter, dropout: float):
        super().__init__(dropout)
        self.gain = gain

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        return x + self.gain * self.dropout(branch(x))


@dataclass(eq=False, kw_only=True)
class ReZero(Placement):
    """ReZero, `x + a f(x)`, without norms (Bachlechner et al. 2021).

    With `shared`, the sub-layers of a layer share one gain.
    """

    drawing = """
        x ---+--> sub-layer --> dropout --> x gain --> (+) --> y
             |                                          |
             +------------------------------------------+
    """

    closing = False

    shared: bool

    def residuals(self, norms: Norms, dim: int, places: Sequence[Place]) -> Sequence[Residual]:
        gains = [nn.Parameter(torch.zeros(())) for _ in places]
        return [ReZeroResidual(gains[0] if self.shared else gain, self.dropout) for gain in gains]
