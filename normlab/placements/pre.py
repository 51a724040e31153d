"""Pre-norm: the norm is inside the branch; the stream itself is never normalized.

        x ---+--> norm --> sub-layer --> dropout --> (+) --> y
             |                                        |
             +----------------------------------------+

    y = x + f(norm(x))

    closing norm: one, after the last layer, since nothing else bounds the stream.

Source: Xiong et al. 2020 ("On Layer Normalization in the Transformer Architecture"), figure 1(b).
"""

from typing import ClassVar

from torch import Tensor

from normlab.norms.base import Stream
from normlab.placements.base import Branch, NormResidual, Norms, Place, Placement, Residual


class PreResidual(NormResidual):
    """y = x + dropout(branch(norm(x)))."""

    branch_norm: ClassVar[str | None] = "norm"

    def forward(self, x: Tensor, stream: Stream, branch: Branch) -> Tensor:
        return x + self.dropout(branch(self.norm(x, stream)))


class Pre(Placement):
    """Pre-norm placement (GPT-2, and PowerNorm's and RBN's IWSLT'14 recipes)."""

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        return PreResidual(norms.at(place.path, dim), self.dropout)
