"""LayerNorm Scaling: pre-norm whose norm's output shrinks with depth.

        x ---+--> norm --> / sqrt(l) --> sub-layer --> dropout --> (+) --> y
             |                                                      |
             +------------------------------------------------------+

    y = x + f(norm(x) / sqrt(l)) in layer l = 1, 2, ... of its stack

    closing norm: one.
    at initialization: the stream's variance grows more slowly than with pre-norm. First weights are
    not scaled by depth as well: the authors' code warns of doing both, so there is no such option.

Source: Sun et al. 2025 ("The Curse of Depth in Large Language Models"); their code scales both
sub-layers of a layer alike.
"""

import math
from collections.abc import Callable

from torch import Tensor

from normlab.dropout import Dropout
from normlab.norms.base import Norm, Stream
from normlab.placements.base import Place, Placement, Residual


class ScaledPreResidual(Residual):
    """y = x + dropout(branch(factor * norm(x)))."""

    def __init__(self, norm: Norm, dropout: float, factor: float):
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.factor = factor

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the stream with the branch of its scaled, normalized self added."""
        return x + self.dropout(branch(self.factor * self.norm(x, stream)))

    def extra_repr(self) -> str:
        """Show the factor."""
        return f"factor={self.factor:.4g}"


class LayerNormScaling(Placement):
    """LayerNorm Scaling placement."""

    def residual(self, dim: int, place: Place) -> ScaledPreResidual:
        """Build a pre-norm residual connection scaled by its layer."""
        return ScaledPreResidual(self.norm(dim), self.dropout, 1 / math.sqrt(place.layer + 1))

    def final(self, dim: int) -> Norm:
        """Build the closing norm."""
        return self.norm(dim)
