"""The vision Transformer (Dosovitskiy et al. 2021): an encoder over the patches of a picture.

    picture -> patches -> linear, positions -> encoder layers -> mean or class token -> classes
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.models.architecture import StackArchitecture
from normlab.models.blueprint import Blueprint, Image
from normlab.models.embedding import Sinusoids
from normlab.models.linear import Embedding, Linear
from normlab.models.stacks import Encoder
from normlab.norms.base import Stream
from normlab.placements.base import Placement

Pool = Literal["mean", "class"]


@dataclass(frozen=True, kw_only=True)
class ViTBlueprint(StackArchitecture, Blueprint):
    """Sizes of a vision Transformer.

    Attributes:
        num_layers: layers of its encoder.
        patch: pixels along a side of a patch.
        pool: what the classes are read from: the mean of the patches, or a token of its own.
    """

    sites: ClassVar[tuple[str, ...]] = ("ffn_inner_norm", "embedding_norm")
    num_layers: int
    patch: int
    pool: Pool

    def build(self, spec: Image, placement: Placement) -> "ViT":
        """Build the model for pictures that the patches divide."""
        if not isinstance(spec, Image):
            raise ValueError(
                "model: a vision Transformer takes pictures; task=cifar10 and task=digits have them"
            )
        if spec.height % self.patch or spec.width % self.patch:
            raise ValueError(
                f"model.patch={self.patch} does not divide pictures of {spec.height}x{spec.width} "
                "pixels: choose a size that does"
            )
        return ViT(self, spec, placement)


class PatchEmbedding(nn.Module):
    """The patches of a picture as a stream, the class token first where there is one."""

    def __init__(self, sizes: ViTBlueprint, spec: Image):
        super().__init__()
        self.patch = sizes.patch
        count = (spec.height // sizes.patch) * (spec.width // sizes.patch)
        self.patches = Linear(sizes.patch**2 * spec.channels, sizes.dim)
        self.token = Embedding(1, sizes.dim) if sizes.pool == "class" else None
        places = count + (self.token is not None)
        self.positions = (
            Sinusoids(places, sizes.dim)
            if sizes.positions == "sinusoidal"
            else Embedding(places, sizes.dim)
        )
        self.norm = sizes.embedding_norm(sizes.dim)
        self.dropout = Dropout(sizes.dropout)

    def forward(
        self, pixels: Float[Tensor, "B H W C"], stream: Stream, added: None = None
    ) -> Float[Tensor, "B P D"]:
        """Embed the patches, row by row."""
        rows = pixels.unflatten(1, (-1, self.patch)).unflatten(3, (-1, self.patch))
        x = self.patches(rows.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2))
        if self.token is not None:
            x = torch.cat([self.token.weight.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
        return self.dropout(self.norm(x + self.positions.weight, stream))


class ViT(nn.Module):
    """Patches, an encoder, and the classes."""

    def __init__(self, sizes: ViTBlueprint, spec: Image, placement: Placement):
        super().__init__()
        self.encoder = Encoder(
            PatchEmbedding(sizes, spec), sizes.layer_shape(), placement, num_layers=sizes.num_layers
        )
        self.pool: Pool = sizes.pool
        self.classes = Linear(sizes.dim, spec.classes)

    def forward(self, pixels: Float[Tensor, "B H W C"]) -> Float[Tensor, "B K"]:
        """Return a logit for each class."""
        places = len(self.encoder.embedding.positions.weight)
        valid = torch.ones(len(pixels), places, dtype=torch.bool, device=pixels.device)
        x = self.encoder(pixels, Stream(valid))
        return self.classes(x[:, 0] if self.pool == "class" else x.mean(1))
