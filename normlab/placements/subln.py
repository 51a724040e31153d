"""Sub-LN: pre-norm, with a second norm before the last linear layer of each sub-layer.

    y = x + f(norm(x))
    self-attention     f = out_proj(norm(mixed heads))
    cross-attention    f as in pre-norm, without a second norm
    feed-forward       f = fc2(norm(activation(fc1(...))))

    x: the residual stream [B, P, D]. Each f ends in dropout.
    closing norm: one, as in pre-norm.
    at initialization: the weights of the value and output projections and of the feed-forward
    layers are multiplied by

        N encoder, M decoder layers     factor
        one stack of N layers           sqrt(ln 2N)
        encoder with a decoder          sqrt(ln 3M ln 2N / 3)
        decoder with an encoder         sqrt(ln 3M), except in cross-attention

Source: Wang et al. 2022 ("Magneto: A Foundation Transformer") and torchscale's code.
"""

import math

from normlab.placements.base import Place, Role
from normlab.placements.pre import Pre


class SubLN(Pre):
    """Sub-LN: pre-norm, and a norm before each branch's last linear layer (Wang et al. 2022)."""

    drawing = """
        x ---+--> norm --> sub-layer --> dropout --> (+) --> y
             |                                        |
             +----------------------------------------+
    """

    always = (".hidden", ".self.mix")

    def weight_factor(self, role: Role, place: Place) -> float:
        unscaled = role in ("q", "k") or place.sublayer == "cross"
        return 1.0 if unscaled else self.factor(place)

    def factor(self, place: Place) -> float:
        if not place.other_layers:
            return math.sqrt(math.log(2 * place.layers))
        if place.stack == "encoder":
            return math.sqrt(math.log(3 * place.other_layers) * math.log(2 * place.layers) / 3)
        return math.sqrt(math.log(3 * place.layers))
