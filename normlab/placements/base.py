"""The contract of a placement: it builds the residual connections and the closing norm of a stack.

A placement is composed, not inherited by layers: a layer asks for as many residuals as it has
sub-layers and never knows which wiring it got.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import Norm, Stream

NormFactory = Callable[[int], Norm]
"""Builds a norm for tensors of the given width."""


class Residual(nn.Module, ABC):
    """One residual connection around a sub-layer: its norm(s), dropout and scale.

    `branch_norm` names the attribute of the norm whose output the sub-layer alone reads, if there
    is one.
    """

    branch_norm: ClassVar[str | None] = None

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "B T D"],
        stream: Stream,
        branch: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "B T D"]:
        """Return the stream after the sub-layer `branch`, whose tokens `stream` describes."""


class Placement(ABC):
    """Where norms sit in one stack.

    Args:
        norm: builds the norm of a site.
        dropout: rate on the output of each sub-layer, before it is added.
    """

    init_gain: float = 1.0
    """Factor on the initial weights of feed-forward, value and output projections."""

    def __init__(self, norm: NormFactory, *, dropout: float):
        self.norm = norm
        self.dropout = dropout

    @abstractmethod
    def residual(self, dim: int) -> Residual:
        """Build the residual connection of one sub-layer of width `dim`."""

    @abstractmethod
    def final(self, dim: int) -> Norm:
        """Build the norm that closes the stack (the identity where none belongs)."""
