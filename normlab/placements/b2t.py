"""B2T connection: post-norm, with the layer's input added again before its last norm.

    y = norm(x + x' + f(x')),  x' = norm(x + attention(x))

    x: a layer's input [B, P, D]; f: the feed-forward layer. Both sub-layers end in dropout.
    closing norm: none, because the last layer already ends in a norm.
    at initialization: all weights of a layer are divided by sqrt(layers of the stack).

Source: Takase et al. 2023 ("B2T Connection: Serving Stability and Performance in Deep
Transformers"); the initial weights follow the authors' code.
"""

import torch
from torch import Tensor

from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, Norms, Place, Residual, Role, Sublayer
from normlab.placements.post import Post, PostResidual


class B2TResidual(PostResidual):
    """A post-norm residual that passes on the layer's input, `bottom`, as a second stream.

    The first sub-layer takes its input as `bottom`. The last one returns a single stream,
    `norm(bottom + x + dropout(branch(x)))`.
    """

    def __init__(self, norm: Norm, dropout: float, *, sublayer: Sublayer):
        super().__init__(norm, dropout)
        self.first, self.last = sublayer == "self", sublayer == "ffn"
        self.streams = 1 if self.last else 2

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        x, bottom = (x, x) if self.first else x.chunk(2, dim=-1)
        if self.last:
            return self.norm(bottom + x + self.dropout(branch(x)), tokens)
        return torch.cat([super().forward(x, tokens, branch), bottom], dim=-1)


class B2T(Post):
    """B2T: post-norm that also adds the layer's input before its last norm (Takase et al. 2023)."""

    drawing = """
        x ---+--> attention --> (+) --> norm --+--> feed-forward --> (+) --> norm --> y
             |                   |             |                      |
             +-------------------+             +----------------------+
             |                                                        |
             +--------------------------------------------------------+
    """

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        norm = norms.required(place.path, dim)
        return B2TResidual(norm, self.dropout, sublayer=place.sublayer)

    def weight_factor(self, role: Role, place: Place) -> float:
        return place.layers**-0.5
