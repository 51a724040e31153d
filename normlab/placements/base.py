"""The contract of a placement: it builds the residual connections of a stack, and what closes it.

A placement is composed, not inherited by layers: a layer asks for as many residuals as it has
sub-layers and never knows which wiring it got. What a placement builds may depend on the `Place`.

Beside residuals a placement decides, where the published wiring does, the first sizes of weights
(`gain`), norms inside sub-layers (`inner`), and what a stream passes where its stack begins and
ends (`opening`, `final`). A stream of its own lies beside the first: `opening`, or the residual of
a layer's first sub-layer, returns `[B, P, n D]` whose first `D` features are the stream itself.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import Norm, Stream
from normlab.norms.local import NoNorm

NormFactory = Callable[[int], Norm]
"""Builds a norm for tensors of the given width."""

Sublayer = Literal["self", "cross", "ffn"]
Role = Literal["q", "k", "v", "out", "fc1", "fc2"]
"""What a product does: queries, keys, values and output of an attention; the feed-forward two."""
Site = Literal["q", "k", "v", "mix", "out", "hidden"]
"""Inside a sub-layer: heads of queries, keys, values; the mixed heads; what is projected of them;
the activated features between the two feed-forward products."""

XAVIER: dict[Role, float] = {
    **dict.fromkeys(("q", "k", "v"), 1 / math.sqrt(2)),  # fairseq's for the three of an attention
    **dict.fromkeys(("out", "fc1", "fc2"), 1.0),
}
"""The gains of fairseq's Transformer, which hold where a placement has none of its own."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a residual connection stands.

    Attributes:
        stack: the decoder is what attends backwards alone, beside an encoder or without one.
        layer: of its stack, from 0.
        layers: how many the stack has.
        other_layers: how many the other stack has; 0 where there is no other.
    """

    stack: Literal["encoder", "decoder"]
    layer: int
    layers: int
    sublayer: Sublayer
    other_layers: int = 0

    def at(self, sublayer: Sublayer) -> "Place":
        """Return the place of another sub-layer of the same layer."""
        return replace(self, sublayer=sublayer)

    @property
    def connections(self) -> int:
        """How many residual connections the stack has."""
        return self.layers * (3 if self.stack == "decoder" and self.other_layers else 2)

    @property
    def first(self) -> bool:
        """Whether it is the first connection of the stack."""
        return self.layer == 0 and self.sublayer == "self"


class Residual(nn.Module, ABC):
    """One residual connection around a sub-layer: its norm(s), dropout and scale.

    `branch_norm` names the attribute of the norm whose output the sub-layer alone reads, if there
    is one. `streams` says how many lie side by side in what comes out; the first is the stream.
    """

    branch_norm: ClassVar[str | None] = None
    streams: ClassVar[int] = 1

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "B P D"],
        stream: Stream,
        branch: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "B P D"]:
        """Return the stream after the sub-layer `branch`, whose tokens `stream` describes."""


class Placement(ABC):
    """Where norms sit in one stack.

    Args:
        norm: builds the norm of a site.
        dropout: rate on the output of each sub-layer, before it is added.
    """

    def __init__(self, norm: NormFactory, *, dropout: float):
        self.norm = norm
        self.dropout = dropout

    @abstractmethod
    def residual(self, dim: int, place: Place) -> Residual:
        """Build the residual connection of one sub-layer of width `dim`."""

    def residuals(self, dim: int, places: Sequence[Place]) -> list[Residual]:
        """Build those of one layer, in the order of its sub-layers."""
        return [self.residual(dim, place) for place in places]

    @abstractmethod
    def final(self, dim: int) -> nn.Module:
        """Build the norm that closes the stack (the identity where none belongs).

        It is called as a norm is, and returns the `D` features that leave the stack.
        """

    def opening(self, dim: int) -> nn.Module:
        """Build what the embedded tokens pass before the first layer, called as a norm is."""
        return NoNorm(dim)

    def inner(self, site: Site, dim: int, place: Place, *, heads: int) -> nn.Module | None:
        """Build what stands inside a sub-layer, called as a norm is; None where nothing does.

        `dim` is the width there: that of a head at q, k and v, whose norm all heads share.
        """
        return None

    def gain(self, role: Role, place: Place) -> float:
        """Return the gain of Xavier's distribution for the first weights of a product."""
        return XAVIER[role]


def by_depth(role: Role, place: Place) -> float:
    """Return GPT-2's factor on the first weights: 1 / sqrt(connections) where a branch ends.

    Radford et al. 2019, section 2.3; Shoeybi et al. 2019 call it scaled initialization.
    """
    return place.connections**-0.5 if role in ("out", "fc2") else 1.0
