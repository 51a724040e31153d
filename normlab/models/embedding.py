"""From token ids to the first values of a stream: embedding, positions, optional norm, dropout."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.models.linear import Embedding
from normlab.norms.base import Stream
from normlab.placements.base import NormFactory

Positions = Literal["sinusoidal", "learned"]


def sinusoids(num_positions: int, dim: int) -> Float[Tensor, "P D"]:
    """Return sine then cosine waves of `dim / 2` geometric frequencies (Vaswani 2017, sec. 3.5).

    The two kinds stand in halves, not interleaved, as in tensor2tensor and fairseq.
    """
    half = dim // 2
    frequency = torch.exp(torch.arange(half) * -(math.log(10_000) / max(half - 1, 1)))
    angle = torch.arange(num_positions)[:, None] * frequency[None, :]
    table = torch.zeros(num_positions, dim)
    table[:, :half], table[:, half : 2 * half] = angle.sin(), angle.cos()
    return table


class Sinusoids(nn.Module):
    """Fixed position vectors, standing where a learned table would."""

    weight: Tensor

    def __init__(self, num_positions: int, dim: int):
        super().__init__()
        self.register_buffer("weight", sinusoids(num_positions, dim), persistent=False)


_POSITIONS: dict[Positions, Callable[[int, int], Sinusoids | Embedding]] = {
    "sinusoidal": Sinusoids,
    "learned": Embedding,
}


class StreamEmbedding(nn.Module):
    """scale E[token] + position, zero at padding, then the embedding norm and dropout.

    The scale is sqrt(D) in Vaswani et al. 2017 and 1 in BERT. Several streams may share one token
    embedding, so it is handed in.
    """

    def __init__(
        self,
        tokens: Embedding,
        *,
        scale: float,
        positions: Positions,
        max_positions: int,
        norm: NormFactory,
        dropout: float,
    ):
        super().__init__()
        dim = tokens.embedding_dim
        self.tokens = tokens
        self.scale = scale
        self.max_positions = max_positions
        self.positions = _POSITIONS[positions](max_positions, dim)
        self.norm = norm(dim)
        self.dropout = Dropout(dropout)

    def forward(
        self, ids: Int[Tensor, "B P"], stream: Stream, added: Float[Tensor, "B P D"] | None = None
    ) -> Float[Tensor, "B P D"]:
        """Embed the tokens, whose first column stands at position `stream.start`.

        `added` are further vectors of the tokens, such as those of their segment.
        """
        end = stream.start + ids.shape[1]
        if end > self.max_positions:
            raise ValueError(
                f"a sequence reaches position {end}, the model has {self.max_positions}: "
                f"raise model.max_positions or lower the length limit of the task"
            )
        x = self.tokens(ids) * self.scale + self.positions.weight[stream.start : end]
        x = (x if added is None else x + added) * stream.real(ids)[..., None]
        return self.dropout(self.norm(x, stream))
