"""Post-norm: the norm stands after the addition, on the stream itself.

        x ---+--> sub-layer --> dropout --> (+) --> norm --> y
             |                               |
             +-------------------------------+

    closing norm: none, since the last layer ends in one.

Source: Vaswani et al. 2017, section 3.1.
"""

from collections.abc import Callable

from torch import Tensor

from normlab.dropout import Dropout
from normlab.norms.base import Norm, Stream
from normlab.norms.local import NoNorm
from normlab.placements.base import Place, Placement, Residual


class PostResidual(Residual):
    """y = norm(x + dropout(branch(x)))."""

    def __init__(self, norm: Norm, dropout: float):
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the normalized sum of the stream and its branch."""
        return self.norm(x + self.dropout(branch(x)), stream)


class Post(Placement):
    """Post-norm placement (the original Transformer, BERT, fairseq's IWSLT'14 README recipe)."""

    def residual(self, dim: int, place: Place) -> PostResidual:
        """Build a post-norm residual connection."""
        return PostResidual(self.norm(dim), self.dropout)

    def final(self, dim: int) -> Norm:
        """Build the identity: the last residual has normalized already."""
        return NoNorm(dim)
