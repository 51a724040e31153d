"""Sandwich: one norm before the sub-layer and one after it, both inside the branch.

        x ---+--> norm --> sub-layer --> norm --> dropout --> (+) --> y
             |                                                 |
             +-------------------------------------------------+

    y = x + norm(f(norm(x)))

    closing norm: one.
    at initialization: the branch has the size that its last norm gives it, whatever the weights.

Source: Ding et al. 2021 (CogView), with GPT-2's first sizes. Their layer norm divides its input by
the largest entry first, a guard of 16-bit arithmetic that is left out.
"""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from normlab.dropout import Dropout
from normlab.norms.base import Norm, Stream
from normlab.placements.base import (
    XAVIER,
    NormFactory,
    Place,
    Placement,
    Residual,
    Role,
    by_depth,
)


class SandwichResidual(Residual):
    """y = x + dropout(out_norm(branch(norm(x))))."""

    branch_norm: ClassVar[str | None] = "norm"

    def __init__(self, norm: Norm, out_norm: Norm, dropout: float):
        super().__init__()
        self.norm = norm
        self.out_norm = out_norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the stream with the normalized branch of its normalized self added."""
        return x + self.dropout(self.out_norm(branch(self.norm(x, stream)), stream))


class Sandwich(Placement):
    """Sandwich-LN; `depth_scaled` begins as GPT-2 does (see `by_depth`)."""

    def __init__(self, norm: NormFactory, *, dropout: float, depth_scaled: bool):
        super().__init__(norm, dropout=dropout)
        self.depth_scaled = depth_scaled

    def residual(self, dim: int, place: Place) -> SandwichResidual:
        """Build a residual connection with a norm on either side of the sub-layer."""
        return SandwichResidual(self.norm(dim), self.norm(dim), self.dropout)

    def final(self, dim: int) -> Norm:
        """Build the closing norm."""
        return self.norm(dim)

    def gain(self, role: Role, place: Place) -> float:
        """Return the gain, by depth where asked."""
        return XAVIER[role] * (by_depth(role, place) if self.depth_scaled else 1.0)
