"""Pre-norm: the norm stands inside the branch, the stream itself is never normalized.

        x ---+--> norm --> sub-layer --> dropout --> (+) --> y
             |                                        |
             +----------------------------------------+

    closing norm: one, after the last layer, since nothing else bounds the stream.

Source: Xiong et al. 2020 ("On Layer Normalization in the Transformer Architecture"), figure 1(b).
"""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from normlab.dropout import Dropout
from normlab.norms.base import Norm, Stream
from normlab.placements.base import Place, Placement, Residual


class PreResidual(Residual):
    """y = x + dropout(branch(norm(x)))."""

    branch_norm: ClassVar[str | None] = "norm"

    def __init__(self, norm: Norm, dropout: float):
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the stream with the branch of its normalized self added."""
        return x + self.dropout(branch(self.norm(x, stream)))


class Pre(Placement):
    """Pre-norm placement (GPT-2, and PowerNorm's and RBN's IWSLT'14 recipes)."""

    def residual(self, dim: int, place: Place) -> Residual:
        """Build a pre-norm residual connection."""
        return PreResidual(self.norm(dim), self.dropout)

    def final(self, dim: int) -> Norm:
        """Build the closing norm."""
        return self.norm(dim)
