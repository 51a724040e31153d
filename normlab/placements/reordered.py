"""Reordered norm: each sub-layer's output is normalized before it is added to the stream.

    y = x + norm(f(x))

    x: the residual stream [B, P, D]; f: the sub-layer. Dropout follows the norm.
    closing norm: one, after the last layer, because nothing else bounds the stream.
    at initialization: with gains of 1, only the norm sets the scale of a branch, whatever the
    weights. With `zero_start`, gains are 0, and every layer is the identity.

Source: OLMo 2 (OLMo et al. 2024) and Swin Transformer V2 (Liu et al. 2022, "res-post-norm"), whose
gains start at 0. In both, sub-layers read the stream without normalizing it.
"""

from dataclasses import dataclass

from torch import Tensor

from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, NormResidual, Norms, Place, Placement, Residual


class ReorderedResidual(NormResidual):
    """`x + dropout(norm(branch(x)))`."""

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        return x + self.dropout(self.norm(branch(x), tokens))


@dataclass(eq=False, kw_only=True)
class Reordered(Placement):
    """Reordered norm, `x + norm(f(x))`. With `zero_start`, gains start at 0 (Liu et al. 2022)."""

    drawing = """
        x ---+--> sub-layer --> norm --> dropout --> (+) --> y
             |                                        |
             +----------------------------------------+
    """

    kind = ReorderedResidual

    zero_start: bool

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        norm = norms.required(place.path, dim)
        if self.zero_start:
            norm.start_gain(0.0, key="placement.zero_start=true")
        return ReorderedResidual(norm, self.dropout)
