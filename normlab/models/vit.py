"""The vision Transformer (Dosovitskiy et al. 2021): an encoder over the patches of a picture.

picture -> patches -> linear, positions -> encoder layers -> mean or class token -> classes
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from normlab.models.architecture import StackArchitecture
from normlab.models.linear import Linear
from normlab.models.patches import PatchEmbedding
from normlab.models.spec import Image
from normlab.models.stacks import Encoder
from normlab.norms.base import Stream
from normlab.placements.base import Placement

Pool = Literal["mean", "class"]


@dataclass(frozen=True, kw_only=True)
class ViTArchitecture(StackArchitecture):
    """Sizes of a vision Transformer.

    Attributes:
        num_layers: layers of its encoder.
        patch: pixels along a side of a patch.
        pool: what the classes are read from: the mean of the patches, or a token of its own.
    """

    takes = Image
    num_layers: int
    patch: int
    pool: Pool

    def make(self, spec: Image, encoder: Placement, decoder: Placement) -> "ViT":
        """Build the model for pictures that the patches divide."""
        if spec.height % self.patch or spec.width % self.patch:
            raise ValueError(
                f"model.patch={self.patch} does not divide pictures of {spec.height}x{spec.width} "
                "pixels: choose a size that does"
            )
        entry = PatchEmbedding(
            spec,
            dim=self.dim,
            patch=self.patch,
            token=self.pool == "class",
            positions=self.positions,
            norm=self.embedding_norm,
            dropout=self.dropout,
        )
        return ViT(self, spec, entry, encoder)


class ViT(nn.Module):
    """Patches, an encoder, and the classes."""

    def __init__(
        self, sizes: ViTArchitecture, spec: Image, entry: PatchEmbedding, placement: Placement
    ):
        super().__init__()
        self.encoder = Encoder(entry, sizes.layer_shape(), placement, num_layers=sizes.num_layers)
        self.pool: Pool = sizes.pool
        self.classes = Linear(sizes.dim, spec.classes)

    def forward(self, pixels: Float[Tensor, "B H W C"]) -> Float[Tensor, "B K"]:
        """Return a logit for each class."""
        x = self.encoder(pixels, Stream())
        return self.classes(x[:, 0] if self.pool == "class" else x.mean(1))
