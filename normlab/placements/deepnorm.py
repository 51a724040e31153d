"""DeepNorm: post-norm with a heavier stream and smaller first weights, by the depth of the stacks.

        x ---+--> sub-layer --> dropout --> (+) --> norm --> y
             |                               |
             +--> x alpha -------------------+

    y = norm(alpha x + f(x))

    closing norm: none, since the last layer ends in one.
    at initialization: Xavier's gain is beta for values, outputs and the feed-forward layer, 1 for
    queries and keys; the whole update of a step is then bounded whatever the depth.

    N encoder, M decoder layers     alpha                beta
    encoder alone                   (2N)^(1/4)           (8N)^(-1/4)
    decoder alone                   (2M)^(1/4)           (8M)^(-1/4)
    encoder beside a decoder        .81 (N^4 M)^(1/16)   .87 (N^4 M)^(-1/16)
    decoder beside an encoder       (3M)^(1/4)           (12M)^(-1/4)

Source: Wang et al. 2022 ("DeepNet: Scaling Transformers to 1,000 Layers"), figure 2.
"""

from collections.abc import Callable

from torch import Tensor

from normlab.dropout import Dropout
from normlab.norms.base import Norm, Stream
from normlab.norms.local import NoNorm
from normlab.placements.base import NormFactory, Place, Placement, Residual, Role


class DeepNormResidual(Residual):
    """y = norm(alpha x + dropout(branch(x)))."""

    def __init__(self, norm: Norm, dropout: float, alpha: float):
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.alpha = alpha

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the normalized sum of the heavier stream and its branch."""
        return self.norm(self.alpha * x + self.dropout(branch(x)), stream)

    def extra_repr(self) -> str:
        """Show alpha."""
        return f"alpha={self.alpha:.4g}"


class DeepNorm(Placement):
    """DeepNorm placement.

    `encoder_beta` is the constant .87 of an encoder beside a decoder: 1.15, its inverse, is what
    torchscale has in that place.
    """

    def __init__(self, norm: NormFactory, *, dropout: float, encoder_beta: float):
        super().__init__(norm, dropout=dropout)
        self.encoder_beta = encoder_beta

    def residual(self, dim: int, place: Place) -> DeepNormResidual:
        """Build a post-norm residual connection whose stream counts alpha times."""
        return DeepNormResidual(self.norm(dim), self.dropout, self.alpha(place))

    def final(self, dim: int) -> Norm:
        """Build the identity: the last residual has normalized already."""
        return NoNorm(dim)

    def gain(self, role: Role, place: Place) -> float:
        """Return beta, and 1 for queries and keys."""
        return 1.0 if role in ("q", "k") else self.beta(place)

    def alpha(self, place: Place) -> float:
        """Return the weight of the stream."""
        if not place.other_layers:
            return (2 * place.layers) ** 0.25
        if place.stack == "encoder":
            return 0.81 * (place.layers**4 * place.other_layers) ** (1 / 16)
        return (3 * place.layers) ** 0.25

    def beta(self, place: Place) -> float:
        """Return the gain of the first weights of values, outputs and the feed-forward layer."""
        if not place.other_layers:
            return (8 * place.layers) ** -0.25
        if place.stack == "encoder":
            return self.encoder_beta * (place.layers**4 * place.other_layers) ** (-1 / 16)
        return (12 * place.layers) ** -0.25
