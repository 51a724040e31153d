"""Sandwich: one norm before the sub-layer and one after it, both inside the branch.

        x ---+--> norm --> sub-layer --> norm --> dropout --> (+) --> y
             |                                                 |
             +-------------------------------------------------+

    y = x + norm(f(norm(x)))

    closing norm: one.
    at initialization: the branch has the size that its last norm gives it, whatever the weights.

Source: Ding et al. 2021 (CogView), with GPT-2's initial weights. Their layer norm first divides its
input by the largest entry, a guard for 16-bit arithmetic that is left out here.
"""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from normlab.norms.base import Norm, Stream
from normlab.placements.base import (
    XAVIER,
    NormResidual,
    Norms,
    Place,
    Placement,
    Residual,
    Role,
    by_depth,
)


class SandwichResidual(NormResidual):
    """y = x + dropout(out_norm(branch(norm(x))))."""

    branch_norm: ClassVar[str | None] = "norm"

    def __init__(self, norm: Norm, out_norm: Norm, dropout: float):
        super().__init__(norm, dropout)
        self.out_norm = out_norm

    @classmethod
    def built(cls, norms: Norms, dim: int, place: Place, dropout: float) -> "SandwichResidual":
        """Build it with both norms of a place, the second at `<path>.out`."""
        return cls(norms.at(place.path, dim), norms.at(f"{place.path}.out", dim), dropout)

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(self.out_norm(branch(self.norm(x, stream)), stream))


class Sandwich(Placement):
    """Sandwich-LN; `depth_scaled` begins with GPT-2's weights (see `by_depth`)."""

    def __init__(self, *, dropout: float, depth_scaled: bool):
        super().__init__(dropout=dropout)
        self.depth_scaled = depth_scaled

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        return SandwichResidual.built(norms, dim, place, self.dropout)

    def gain(self, role: Role, place: Place) -> float:
        return XAVIER[role] * (by_depth(role, place) if self.depth_scaled else 1.0)
