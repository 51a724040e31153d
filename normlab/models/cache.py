"""What a decoder layer keeps between two steps of incremental decoding.

`N = G W` hypotheses: `W` for each of `G` sentences, those of one sentence side by side as the
queries of one attention. Keys and values are written once, into room allocated once, and stay where
they are: when the beam keeps other hypotheses, only the lineage changes, which says which of the
sentence's keys a hypothesis descends from and may see.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from normlab.models.attention import CrossAttention, SelfAttention
from normlab.norms.base import Stream


class Lineage:
    """Which hypothesis of its sentence each hypothesis descends from, at every position so far."""

    def __init__(self, width: int):
        self.width = width
        self.slots: Int[Tensor, "G W L"] | None = None
        self.visible: Bool[Tensor, "G 1 W L*W"] | None = None
        """Whether a hypothesis descends from the one whose key this is; None: from all of them."""

    def extend(self, ids: Int[Tensor, "N"]) -> None:
        """Go on to the next position, whose tokens are `ids`."""
        if self.width == 1:
            return
        every = torch.arange(self.width, device=ids.device)
        own = every.expand(len(ids) // self.width, -1)[..., None]
        self.slots = own if self.slots is None else torch.cat([self.slots, own], dim=-1)
        self.visible = (self.slots[..., None] == every).flatten(2).unsqueeze(1)

    def select(self, rows: Int[Tensor, "M"]) -> None:
        """Keep the hypotheses `rows` in that order."""
        if self.slots is not None:
            self.slots = self.slots.flatten(0, 1)[rows].unflatten(0, (-1, self.width))


def _beside(heads: Float[Tensor, "N H 1 K"], width: int) -> Float[Tensor, "G H W K"]:
    """Put the hypotheses of a sentence side by side, as the queries of one attention."""
    return heads.transpose(1, 2).flatten(0, 1).unflatten(0, (-1, width)).transpose(1, 2)


class SelfCache:
    """Keys and values of the positions so far, of one layer's self-attention."""

    def __init__(self, lineage: Lineage, *, max_length: int):
        """Make room for `max_length` positions when the first comes."""
        self.lineage = lineage
        self.max_length = max_length
        self.used = 0
        self.key: Tensor
        self.value: Tensor

    def attend_self(
        self, attention: SelfAttention, x: Float[Tensor, "N 1 D"], stream: Stream
    ) -> Float[Tensor, "N 1 D"]:
        """Append the position's keys and values, then attend over those of each one's past."""
        width = self.lineage.width
        query, key, value = (_beside(heads, width) for heads in attention.project(x, stream))
        if self.used == 0:
            groups, heads, _, head_dim = key.shape
            room = self.max_length * width
            # Keys lie as the product reads them, or each step would copy them.
            self.key = key.new_empty(groups, heads, head_dim, room).transpose(2, 3)
            self.value = value.new_empty(groups, heads, room, head_dim)
        added = slice(self.used, self.used + width)
        self.key[:, :, added] = key
        self.value[:, :, added] = value
        self.used += width
        past = slice(self.used)
        mixed = attention.mix(
            query, self.key[:, :, past], self.value[:, :, past], self.lineage.visible
        )
        return attention.project_mix(mixed.view(x.shape), stream)


class LayerCache(SelfCache):
    """Keys and values of one decoder layer, those of the memory among them."""

    def __init__(
        self,
        lineage: Lineage,
        memory_key: Float[Tensor, "G H S K"],
        memory_value: Float[Tensor, "G H S K"],
        source: Stream,
        *,
        max_length: int,
    ):
        super().__init__(lineage, max_length=max_length)
        self.memory_key = memory_key.transpose(2, 3).contiguous().transpose(2, 3)
        self.memory_value = memory_value.contiguous()
        self.source = source

    def attend_cross(
        self, attention: CrossAttention, x: Float[Tensor, "N 1 D"], stream: Stream
    ) -> Float[Tensor, "N 1 D"]:
        """Attend over the memory."""
        query = _beside(attention.project_query(x, stream), self.lineage.width)
        mixed = attention.mix(query, self.memory_key, self.memory_value, self.source.keys)
        return attention.project_mix(mixed.view(x.shape), stream)

    def keep(self, groups: Int[Tensor, "F"]) -> None:
        """Drop all sentences but `groups`."""
        self.memory_key = self.memory_key.index_select(0, groups)
        self.memory_value = self.memory_value.index_select(0, groups)
        self.source = self.source.picked(groups)
        self.key, self.value = (self._kept(room, groups) for room in (self.key, self.value))

    def _kept(self, room: Tensor, groups: Tensor) -> Tensor:
        kept = torch.empty_like(room[: len(groups)])
        kept[:, :, : self.used] = room[groups, :, : self.used]
        return kept
