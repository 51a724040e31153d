"""DeepNorm: post-norm with a scaled-up stream and smaller initial weights, depending on depth.

    y = norm(alpha x + f(x))

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout.
    closing norm: none, because the last layer already ends in a norm.
    at initialization: the Xavier gain is 1 for the query and key projections, and beta for the
    value and output projections and the feed-forward layers. This bounds how much one step changes
    the model, at any depth.

    N encoder, M decoder layers     alpha                beta
    encoder only                    (2N)^(1/4)           (8N)^(-1/4)
    decoder only                    (2M)^(1/4)           (8M)^(-1/4)
    encoder with a decoder          .81 (N^4 M)^(1/16)   .87 (N^4 M)^(-1/16)
    decoder with an encoder         (3M)^(1/4)           (12M)^(-1/4)

Source: Wang et al. 2022 ("DeepNet: Scaling Transformers to 1,000 Layers"), figure 2. In place of
.87, torchscale has its inverse, 1.15.
"""

from torch import Tensor

from normlab.norms.tokens import Tokens
from normlab.placements.base import XAVIER, Branch, NormResidual, Place, Role
from normlab.placements.post import Post


class DeepNormResidual(NormResidual):
    """`norm(alpha x + dropout(branch(x)))`, where alpha is `factor`."""

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        return self.norm(self.factor * x + self.dropout(branch(x)), tokens)


class DeepNorm(Post):
    """DeepNorm, `norm(alpha x + f(x))`, with smaller initial weights (Wang et al. 2022)."""

    drawing = """
        x ---+--> sub-layer --> dropout --> (+) --> norm --> y
             |                               |
             +--> x alpha -------------------+
    """

    kind = DeepNormResidual
    xavier = dict.fromkeys(XAVIER, 1.0)

    def factor(self, place: Place) -> float:
        if not place.other_layers:
            return (2 * place.layers) ** 0.25
        if place.stack == "encoder":
            return 0.81 * (place.layers**4 * place.other_layers) ** (1 / 16)
        return (3 * place.layers) ** 0.25

    def weight_factor(self, role: Role, place: Place) -> float:
        if role in ("q", "k"):
            return 1.0
        if not place.other_layers:
            return (8 * place.layers) ** -0.25
        if place.stack == "encoder":
            return 0.87 * (place.layers**4 * place.other_layers) ** (-1 / 16)
        return (12 * place.layers) ** -0.25
