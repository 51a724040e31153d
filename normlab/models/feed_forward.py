"""The position-wise feed-forward sub-layer, with room for norms between its two products."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.models.linear import Linear
from normlab.norms.base import Stream
from normlab.placements.base import NormFactory, Role

Activation = Literal["relu", "gelu"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """fc2(dropout(activation(norm(fc1(x))))) (Vaswani et al. 2017, eq. 2).

    The inner norm is the identity unless asked for; batch norm there is what Yao et al. 2021 add to
    make a batch-normalized vision Transformer train. `hidden_norm` stands before fc2 where a
    placement puts one there.
    """

    sublayer: ClassVar[str] = "feed_forward"

    def __init__(
        self,
        dim: int,
        ffn_dim: int,
        *,
        activation: Activation,
        inner_norm: NormFactory,
        dropout: float,
        gain: Callable[[Role], float],
        hidden_norm: nn.Module | None = None,
    ):
        super().__init__()
        self.fc1 = Linear(dim, ffn_dim, gains=(gain("fc1"),))
        self.inner_norm = inner_norm(ffn_dim)
        self.activation = _ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.hidden_norm = hidden_norm
        self.fc2 = Linear(ffn_dim, dim, gains=(gain("fc2"),))

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Transform each position by itself (but for what the inner norm pools)."""
        hidden = self.inner_norm(self.fc1(x), stream)
        hidden = self.dropout(self.activation(hidden))
        return self.fc2(hidden if self.hidden_norm is None else self.hidden_norm(hidden, stream))
