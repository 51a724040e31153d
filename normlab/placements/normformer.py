"""NormFormer: pre-norm with extra norms after self-attention and the activation, and head gains.

    self-attention     y = x + norm(gains(attention(norm(x))))
    cross-attention    y = x + attention(norm(x)), as in pre-norm
    feed-forward       y = x + fc2(norm(activation(fc1(norm(x)))))

    x: the residual stream [B, P, D]; gains: one learned gain per head. Branches end in dropout.
    closing norm: one, as in pre-norm.
    at initialization: all gains are 1.

Source: Shleifer et al. 2021 ("NormFormer: Improved Transformer Pretraining with Extra
Normalization"). The paper scales each head before the output projection (`head_gains: mix`). The
authors' fairseq code instead cuts the width after it into equal parts, one per head, and scales
those (`out`). The learned gain on the residual stream, which the paper uses in small models, is
omitted.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Place, Residual, Site
from normlab.placements.pre import Pre
from normlab.placements.sandwich import SandwichResidual


class HeadGains(nn.Module):
    """Multiplies equal parts of the width by one learned gain each, one part per head."""

    def __init__(self, heads: int):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(heads))

    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens) -> Float[Tensor, "B P D"]:
        return (x.unflatten(-1, (len(self.gain), -1)) * self.gain[:, None]).flatten(-2)


@dataclass(eq=False, kw_only=True)
class NormFormer(Pre):
    """NormFormer: pre-norm with extra norms and a gain per head (Shleifer et al. 2021)."""

    drawing = """
        x ---+--> norm --> self-attention --> x gain of its head --> norm --> dropout --> (+) --> y
             |                                                                             |
             +-----------------------------------------------------------------------------+

        x ---+--> norm --> fc1 --> activation --> norm --> fc2 --> dropout --> (+) --> y
             |                                                                  |
             +------------------------------------------------------------------+
    """

    always = (".hidden",)

    head_gains: Literal["out", "mix"]

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        if place.sublayer == "self":
            return SandwichResidual(norms, dim, place, self.dropout)
        return super().residual(norms, dim, place)

    def inner(self, norms: Norms, site: Site, dim: int, place: Place) -> nn.Module | None:
        if site == self.head_gains and place.sublayer == "self":
            return HeadGains(place.heads)
        return super().inner(norms, site, dim, place)
