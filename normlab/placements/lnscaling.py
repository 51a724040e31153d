"""LayerNorm Scaling: pre-norm, with norm outputs that are scaled down with depth.

    y = x + f(norm(x) / sqrt(l)) in layer l = 1, 2, ... of its stack

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout.
    closing norm: one, as in pre-norm.
    at initialization: the stream's variance grows more slowly than with pre-norm. The authors' code
    warns against also scaling the initial weights by depth.

Source: Sun et al. 2025 ("The Curse of Depth in Large Language Models") and their code.
"""

import math

from torch import Tensor

from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, NormResidual, Place, Placement


class ScaledPreResidual(NormResidual):
    """`x + dropout(branch(factor * norm(x)))`."""

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        return x + self.dropout(branch(self.factor * self.norm(x, tokens)))


class LayerNormScaling(Placement):
    """LayerNorm Scaling, `x + f(norm(x) / sqrt(l))` in layer l (Sun et al. 2025)."""

    drawing = """
        x ---+--> norm --> / sqrt(l) --> sub-layer --> dropout --> (+) --> y
             |                                                      |
             +------------------------------------------------------+
    """

    kind = ScaledPreResidual

    def factor(self, place: Place) -> float:
        return 1 / math.sqrt(place.layer + 1)
