"""The vision Transformer (Dosovitskiy et al. 2021): an encoder over the patches of an image.

image -> patches -> linear, positions -> encoder layers -> mean or class token -> classes
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.errors import UserError
from normlab.models.base import Fold, Image, StackArchitecture
from normlab.models.layers import soft_cap
from normlab.models.seq2seq import TransformerStack
from normlab.models.stack_builder import StackBuilder
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Placement

Pooling = Literal["mean", "class"]


@dataclass(frozen=True, kw_only=True)
class ViTArchitecture(StackArchitecture):
    """Architecture settings of a vision Transformer.

    Attributes:
        num_layers: number of layers in the encoder.
        patch: side of a patch in pixels.
        pool: the classifier's input: the mean over patches, or the output at an extra class token.
    """

    takes = Image
    num_layers: int
    patch: int
    pool: Pooling

    def make(self, spec: Image, placement: Placement, norms: Norms) -> "ViT":
        if self.positions in ("rope", "none"):
            raise UserError(
                f"model.positions={self.positions}: without position vectors, a vision "
                "Transformer cannot see where a patch is; use learned or sinusoidal"
            )
        if spec.height % self.patch or spec.width % self.patch:
            raise UserError(
                f"model.patch={self.patch} does not divide the image size {spec.height}x"
                f"{spec.width}; choose a patch size that does"
            )
        return ViT(self, spec, StackBuilder(self, placement, norms))


class PatchEmbedding(nn.Module):
    """Embeds the patches of an image, with a class token first if `pool` is `class`.

    Each patch is embedded by a linear projection of its pixels (Dosovitskiy et al. 2021, eq. 1).
    """

    def __init__(self, sizes: ViTArchitecture, spec: Image, builder: StackBuilder):
        super().__init__()
        dim, patch, token = sizes.dim, sizes.patch, sizes.pool == "class"
        self.patch = patch
        self.max_positions = (spec.height // patch) * (spec.width // patch) + token
        self.patches = builder.head(patch**2 * spec.channels, dim)
        self.token = builder.vectors(1) if token else None
        self.positions: Any = builder.positions(self.max_positions)
        self.norm = builder.embedding_norm("encoder")
        self.dropout = Dropout(sizes.dropout)

    def forward(
        self, pixels: Float[Tensor, "B H W C"], tokens: Tokens, added: None = None
    ) -> Float[Tensor, "B P D"]:
        """Embed the patches, row by row."""
        rows = pixels.unflatten(1, (-1, self.patch)).unflatten(3, (-1, self.patch))
        x = self.patches(rows.transpose(2, 3).flatten(3).flatten(1, 2))
        if self.token is not None:
            x = torch.cat([self.token.weight.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
        return self.dropout(self.norm(x + self.positions.weight, tokens))


class ViT(nn.Module):
    """A vision Transformer: patch embedding, encoder and classifier."""

    def __init__(self, sizes: ViTArchitecture, spec: Image, builder: StackBuilder):
        super().__init__()
        entry = PatchEmbedding(sizes, spec, builder)
        self.encoder = TransformerStack(entry, builder, "encoder", num_layers=sizes.num_layers)
        self.pool: Pooling = sizes.pool
        self.classes = builder.output(spec.classes, bias=True)
        self.logit_cap = sizes.logit_cap

    def forward(self, pixels: Float[Tensor, "B H W C"]) -> Float[Tensor, "B K"]:
        """Return a logit for each class."""
        x = self.encoder(pixels, Tokens())
        logits = self.classes(x[:, 0] if self.pool == "class" else x.mean(1))
        return soft_cap(logits, self.logit_cap)

    def folds(self) -> Sequence[Fold]:
        """Return the final norm, whose scale and shift commute with the mean over patches."""
        return [Fold(self.encoder, "final_norm", into=(self.classes,))]
