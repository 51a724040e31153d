"""From a picture to the first values of a stream: patches, positions, optional norm, dropout."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.models.embedding import Positions, Sinusoids
from normlab.models.linear import Embedding, Linear
from normlab.models.spec import Image
from normlab.norms.base import Stream
from normlab.placements.base import NormFactory


class PatchEmbedding(nn.Module):
    """The patches of a picture as a stream; `token` is whether one of its own comes first.

    A patch is one linear map of its pixels (Dosovitskiy et al. 2021, equation 1).
    """

    def __init__(
        self,
        spec: Image,
        *,
        dim: int,
        patch: int,
        token: bool,
        positions: Positions,
        norm: NormFactory,
        dropout: float,
    ):
        super().__init__()
        self.patch = patch
        self.max_positions = (spec.height // patch) * (spec.width // patch) + token
        self.patches = Linear(patch**2 * spec.channels, dim)
        self.token = Embedding(1, dim) if token else None
        kind = Sinusoids if positions == "sinusoidal" else Embedding
        self.positions = kind(self.max_positions, dim)
        self.norm = norm(dim)
        self.dropout = Dropout(dropout)

    def forward(
        self, pixels: Float[Tensor, "B H W C"], stream: Stream, added: None = None
    ) -> Float[Tensor, "B P D"]:
        """Embed the patches, row by row."""
        rows = pixels.unflatten(1, (-1, self.patch)).unflatten(3, (-1, self.patch))
        x = self.patches(rows.transpose(2, 3).flatten(3).flatten(1, 2))
        if self.token is not None:
            x = torch.cat([self.token.weight.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
        return self.dropout(self.norm(x + self.positions.weight, stream))
