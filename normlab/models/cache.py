"""What a decoder layer keeps between two steps of incremental decoding.

`N = G W` hypotheses: `W` for each of `G` sentences, those of one sentence side by side. Keys and
values of the memory are kept once a sentence; its hypotheses stand as queries of one attention.
Keys and values of the target stream are written into room allocated once.
"""

from jaxtyping import Float, Int
from torch import Tensor

from normlab.models.attention import CrossAttention, SelfAttention
from normlab.norms.base import Stream


class SelfCache:
    """Keys and values of the positions so far, of one layer's self-attention."""

    def __init__(self, *, max_length: int):
        """Make room for `max_length` positions when the first comes."""
        self.max_length = max_length
        self.length = 0
        self.key: Tensor
        self.value: Tensor

    def attend_self(
        self, attention: SelfAttention, x: Float[Tensor, "N 1 D"]
    ) -> Float[Tensor, "N 1 D"]:
        """Append the position's key and value, then attend over all positions so far."""
        query, key, value = attention.project(x)
        if self.length == 0:
            rows, heads, _, head_dim = key.shape
            room = (rows, heads, self.max_length, head_dim)
            self.key, self.value = key.new_empty(room), value.new_empty(room)
        self.key[:, :, self.length : self.length + 1] = key
        self.value[:, :, self.length : self.length + 1] = value
        self.length += 1
        return attention.attend(
            query, self.key[:, :, : self.length], self.value[:, :, : self.length], None
        )


class LayerCache(SelfCache):
    """Keys and values of one decoder layer, those of the memory among them."""

    def __init__(
        self,
        memory_key: Float[Tensor, "G H S K"],
        memory_value: Float[Tensor, "G H S K"],
        source: Stream,
        *,
        width: int,
        max_length: int,
    ):
        super().__init__(max_length=max_length)
        self.memory_key, self.memory_value = memory_key, memory_value
        self.visible = source.valid[:, None, None, :]
        self.width = width

    def attend_cross(
        self, attention: CrossAttention, x: Float[Tensor, "N 1 D"]
    ) -> Float[Tensor, "N 1 D"]:
        """Attend over the memory, the hypotheses of a sentence being the queries."""
        query = attention.split(attention.q_proj(x).view(-1, self.width, x.shape[-1]))
        mixed = attention.attend(query, self.memory_key, self.memory_value, self.visible)
        return mixed.reshape(x.shape)

    def select(self, rows: Int[Tensor, "M"], groups: Int[Tensor, "F"] | None) -> None:
        """Keep the hypotheses `rows` in that order, and of the sentences only `groups`."""
        past = slice(self.length)
        if groups is None:
            self.key[:, :, past] = self.key[rows, :, past]
            self.value[:, :, past] = self.value[rows, :, past]
            return
        self.memory_key = self.memory_key.index_select(0, groups)
        self.memory_value = self.memory_value.index_select(0, groups)
        self.visible = self.visible.index_select(0, groups)
        self.key, self.value = (self._kept(room, rows) for room in (self.key, self.value))

    def _kept(self, room: Tensor, rows: Tensor) -> Tensor:
        kept = room.new_empty((len(rows), *room.shape[1:]))
        kept[:, :, : self.length] = room[rows, :, : self.length]
        return kept
