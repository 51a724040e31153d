"""Rotary position embeddings (Su et al. 2021, section 3.2): each pair of features is rotated.

    f_j = base^(-2j/K),  j < K/2        pair j of a head at position t is rotated by the angle t f_j

Vectors keep their length, and the score of a query and a key depends only on the difference of
their positions. Pair j consists of features j and j + K/2 (`halves`: GPT-NeoX, transformers) or
2j and 2j + 1 (`interleaved`: the paper, LLaMA). The two differ only in the order of the rows of the
query and key projections.
"""

from typing import Literal

import torch
from jaxtyping import Float
from msgspec import Struct
from torch import Tensor, nn

from normlab.errors import UserError


class Rope(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of rotary positions, `model.rope`.

    With `local_base`, every `global_every`-th layer has `base` and all others have `local_base`
    (Gemma 3, whose local layers also have an attention window; here they attend to all positions).
    """

    base: float = 10_000.0
    pairs: Literal["halves", "interleaved"] = "halves"
    local_base: float | None = None
    global_every: int = 6

    def in_layer(self, layer: int, dim: int) -> "Rotary":
        """Build the rotation for a layer, counted from 0, with heads of width `dim`."""
        base = self.base
        if self.local_base is not None and (layer + 1) % self.global_every:
            base = self.local_base
        return Rotary(dim, base=base, pairs=self.pairs)


class Rotary(nn.Module):
    """Rotates the heads of queries or keys. Raises UserError if their width is odd."""

    frequencies: Tensor

    def __init__(self, dim: int, *, base: float, pairs: Literal["halves", "interleaved"]):
        super().__init__()
        if dim % 2:
            raise UserError(f"model.positions=rope needs heads of an even width, not {dim}")
        self.axis = -1 if pairs == "interleaved" else -2
        self._tables: tuple[Tensor, int, Tensor, Tensor] | None = None
        powers = torch.arange(0, dim, 2, dtype=torch.float64) / dim
        self.register_buffer("frequencies", base**-powers, persistent=False)

    def forward(self, heads: Float[Tensor, "B H P K"], start: int) -> Float[Tensor, "B H P K"]:
        """Return the rotated heads, whose first column is at position `start`."""
        end = start + heads.shape[2]
        cos, sin = (table[start:end] for table in self.angles(end, heads))
        shape = (2, -1) if self.axis == -2 else (-1, 2)
        a, b = heads.unflatten(-1, shape).unbind(self.axis)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=self.axis).flatten(-2)

    def angles(self, count: int, like: Tensor) -> tuple[Float[Tensor, "P K"], Float[Tensor, "P K"]]:
        """Return cosines and sines for `count` or more positions, from the cache if possible."""
        frequencies, known = self.frequencies, self._tables
        if known is not None and not torch.compiler.is_compiling():
            made_of, version, cos, sin = known
            same = made_of is frequencies and version == frequencies._version
            if same and len(cos) >= count and (cos.dtype, cos.device) == (like.dtype, like.device):
                return cos, sin
        angles = torch.arange(count, device=like.device)[:, None] * frequencies
        cos, sin = angles.cos().to(like), angles.sin().to(like)
        if not torch.compiler.is_compiling():
            self._tables = frequencies, frequencies._version, cos, sin
        return cos, sin
