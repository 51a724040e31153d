"""ReZero: no norm; the branch is let in by a learned gain that begins at 0.

        x ---+--> sub-layer --> dropout --> x gain --> (+) --> y
             |                                          |
             +------------------------------------------+

    y = x + a f(x)

    closing norm: none.
    at initialization: a = 0, so every layer is the identity.

Source: Bachlechner et al. 2021 ("ReZero is All You Need"); in their code all sub-layers of a layer
share one gain. With one a sub-layer it is SkipInit's rule (De and Smith 2020).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.norms.base import Norm, Stream
from normlab.norms.local import NoNorm
from normlab.placements.base import NormFactory, Place, Placement, Residual


class ReZeroResidual(Residual):
    """y = x + gain * dropout(branch(x))."""

    def __init__(self, gain: nn.Parameter, dropout: float):
        super().__init__()
        self.gain = gain
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the stream with its branch, as far as the gain lets it in."""
        return x + self.gain * self.dropout(branch(x))


class ReZero(Placement):
    """ReZero placement: it builds no norm. `shared` gives a layer one gain for its sub-layers."""

    def __init__(self, norm: NormFactory, *, dropout: float, shared: bool):
        super().__init__(norm, dropout=dropout)
        self.shared = shared

    def residual(self, dim: int, place: Place) -> ReZeroResidual:
        """Build a residual connection with a gain of its own."""
        return ReZeroResidual(nn.Parameter(torch.zeros(())), self.dropout)

    def residuals(self, dim: int, places: Sequence[Place]) -> list[Residual]:
        """Build those of one layer, with one gain for all of them where it is shared."""
        built = [self.residual(dim, place) for place in places]
        for residual in built[1:] if self.shared else ():
            residual.gain = built[0].gain
        return [*built]

    def final(self, dim: int) -> Norm:
        """Build the identity."""
        return NoNorm(dim)
