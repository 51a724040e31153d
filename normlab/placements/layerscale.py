"""LayerScale: pre-norm with a small learned gain per feature on the branch.

    y = x + g f(norm(x))

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout; g: [D], learned.
    closing norm: one, as in pre-norm.
    at initialization: g = start in all features, so every layer is close to the identity.

Source: Touvron et al. 2021 ("Going deeper with Image Transformers"). For deeper models, they use
smaller values of `start`: .1 for up to 18 layers, 1e-5 for 24, and 1e-6 beyond that.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, Place
from normlab.placements.pre import Pre, PreResidual


class LayerScaleResidual(PreResidual):
    """`x + gain * dropout(branch(norm(x)))`."""

    def __init__(self, norm: Norm, dropout: float, factor: float):
        super().__init__(norm, dropout)
        self.gain = nn.Parameter(torch.full((norm.dim,), factor))

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        return x + self.gain * self.dropout(branch(self.norm(x, tokens)))


@dataclass(eq=False, kw_only=True)
class LayerScale(Pre):
    """LayerScale, `x + g f(norm(x))`, where g starts at `start` (Touvron et al. 2021)."""

    drawing = """
        x ---+--> norm --> sub-layer --> dropout --> x gain --> (+) --> y
             |                                                   |
             +---------------------------------------------------+
    """

    kind = LayerScaleResidual

    start: float

    def factor(self, place: Place) -> float:
        return self.start
