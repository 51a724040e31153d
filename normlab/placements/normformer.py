"""NormFormer: pre-norm, with norms after self-attention and after the activation, and head gains.

        x ---+--> norm --> self-attention --> x gain of its head --> norm --> dropout --> (+) --> y
             |                                                                             |
             +-----------------------------------------------------------------------------+

        x ---+--> norm --> fc1 --> activation --> norm --> fc2 --> dropout --> (+) --> y
             |                                                                  |
             +--> x gain of each feature (small models) ------------------------+

    attention over the memory is plain pre-norm.

    closing norm: one.
    at initialization: all gains are 1.

Source: Shleifer et al. 2021 ("NormFormer: Improved Transformer Pretraining with Extra
Normalization"). The paper scales each head before the output projection (`head_gains: mix`), the
authors' code in fairseq as many parts of the width after it (`out`).
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.norms.base import Norm, Stream
from normlab.placements.base import NormFactory, Place, Residual, Site
from normlab.placements.pre import Pre
from normlab.placements.sandwich import SandwichResidual


class HeadGains(nn.Module):
    """A learned gain for each of as many parts of the width as there are heads."""

    def __init__(self, heads: int):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(heads))

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return the parts scaled."""
        return (x.unflatten(-1, (len(self.gain), -1)) * self.gain[:, None]).flatten(-2)


class ScaledStreamResidual(Residual):
    """y = gain * x + dropout(branch(norm(x)))."""

    branch_norm: ClassVar[str | None] = "norm"

    def __init__(self, norm: Norm, dropout: float):
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.gain = nn.Parameter(torch.ones(norm.dim))

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the scaled stream with the branch of its normalized self added."""
        return self.gain * x + self.dropout(branch(self.norm(x, stream)))


class NormFormer(Pre):
    """NormFormer placement.

    Args:
        norm, dropout: as for any placement.
        head_gains: where heads are scaled (see the head of this file).
        scale_residual: a gain for each feature of the stream beside the feed-forward layer.
    """

    def __init__(
        self,
        norm: NormFactory,
        *,
        dropout: float,
        head_gains: Literal["out", "mix"],
        scale_residual: bool,
    ):
        super().__init__(norm, dropout=dropout)
        self.head_gains = head_gains
        self.scale_residual = scale_residual

    def residual(self, dim: int, place: Place) -> Residual:
        """Build the residual connection of a kind of sub-layer."""
        if place.sublayer == "self":
            return SandwichResidual(self.norm(dim), self.norm(dim), self.dropout)
        if place.sublayer == "ffn" and self.scale_residual:
            return ScaledStreamResidual(self.norm(dim), self.dropout)
        return super().residual(dim, place)

    def inner(self, site: Site, dim: int, place: Place, *, heads: int) -> nn.Module | None:
        """Build the head gains of self-attention, and the norm after the activation."""
        if site == "hidden":
            return self.norm(dim)
        return HeadGains(heads) if site == self.head_gains and place.sublayer == "self" else None
