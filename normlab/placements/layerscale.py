"""LayerScale: pre-norm whose branch has a small learned gain for each feature.

        x ---+--> norm --> sub-layer --> dropout --> x gain --> (+) --> y
             |                                                   |
             +---------------------------------------------------+

    y = x + g f(norm(x))

    closing norm: one.
    at initialization: g = start in all features, so every layer is near the identity.

Source: Touvron et al. 2021 ("Going deeper with Image Transformers"). Their start falls with depth:
.1 up to 18 layers, 1e-5 at 24, 1e-6 beyond.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.norms.base import Norm, Stream
from normlab.placements.base import NormFactory, Place, Placement, Residual


class LayerScaleResidual(Residual):
    """y = x + gain * dropout(branch(norm(x)))."""

    branch_norm: ClassVar[str | None] = "norm"

    def __init__(self, norm: Norm, dropout: float, start: float):
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.gain = nn.Parameter(torch.full((norm.dim,), start))

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the stream with the scaled branch of its normalized self added."""
        return x + self.gain * self.dropout(branch(self.norm(x, stream)))


class LayerScale(Placement):
    """LayerScale placement: pre-norm with branches that begin at `start` of their size."""

    def __init__(self, norm: NormFactory, *, dropout: float, start: float):
        super().__init__(norm, dropout=dropout)
        self.start = start

    def residual(self, dim: int, place: Place) -> LayerScaleResidual:
        """Build a pre-norm residual connection with a gain on its branch."""
        return LayerScaleResidual(self.norm(dim), self.dropout, self.start)

    def final(self, dim: int) -> Norm:
        """Build the closing norm."""
        return self.norm(dim)
