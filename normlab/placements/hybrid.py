"""HybridNorm: norms on queries, keys and values, and a feed-forward layer that adds to its norm.

        x ---+--> attention (norms of each head's q, k, v) --> dropout --> (+) --> y
             |                                                              |
             +--------------------------------------------------------------+

        x --> norm --+--> feed-forward --> dropout --> (+) --> y
                     |                                  |
                     +----------------------------------+

    y = n + f(n),  n = norm(x): what is added to is the norm's output, not its input

    closing norm: one.
    at initialization: GPT-2's factor on the last product of each sub-layer.

Source: Zhuo et al. 2025 ("HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid
Normalization") with RMS norms; as the authors' code is. The paper's figures draw the feed-forward
norm after the addition. In HybridNorm* (`star`) the first layer is pre-norm, q, k, v norms and all.
The authors have no attention over a memory: here it is wired as self-attention.
"""

from collections.abc import Callable

from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.norms.base import Norm, Stream
from normlab.placements.base import XAVIER, NormFactory, Place, Residual, Role, Site, by_depth
from normlab.placements.pre import Pre


class PlainResidual(Residual):
    """y = x + dropout(branch(x))."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the stream with its branch added."""
        return x + self.dropout(branch(x))


class NormedStreamResidual(Residual):
    """y = n + dropout(branch(n)), where n = norm(x)."""

    def __init__(self, norm: Norm, dropout: float):
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the normalized stream with its branch added."""
        x = self.norm(x, stream)
        return x + self.dropout(branch(x))


class Hybrid(Pre):
    """HybridNorm placement.

    Args:
        norm, dropout: as for any placement.
        star: HybridNorm*, whose first layer is pre-norm.
        depth_scaled: begin as GPT-2 does (see `by_depth`).
    """

    def __init__(self, norm: NormFactory, *, dropout: float, star: bool, depth_scaled: bool):
        super().__init__(norm, dropout=dropout)
        self.star = star
        self.depth_scaled = depth_scaled

    def residual(self, dim: int, place: Place) -> Residual:
        """Build the residual connection of a kind of sub-layer."""
        if self.star and place.layer == 0:
            return super().residual(dim, place)
        if place.sublayer == "ffn":
            return NormedStreamResidual(self.norm(dim), self.dropout)
        return PlainResidual(self.dropout)

    def inner(self, site: Site, dim: int, place: Place, *, heads: int) -> nn.Module | None:
        """Build the norms of queries, keys and values."""
        return self.norm(dim) if site in ("q", "k", "v") else None

    def gain(self, role: Role, place: Place) -> float:
        """Return the gain, by depth where asked."""
        return XAVIER[role] * (by_depth(role, place) if self.depth_scaled else 1.0)
