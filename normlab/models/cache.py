"""Decoding one token at a time, with cached keys and values or by re-running the prefix.

There are `N = G W` hypotheses, `W` for each of `G` sentences. All hypotheses of a sentence are
queries of one attention call. Keys and values are written into a preallocated buffer, which is
copied only to remove finished sentences. When the beam drops hypotheses, only the lineage changes.
It records which of the sentence's keys belong to each hypothesis's own history, and each hypothesis
attends only to these keys.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from normlab.norms.tokens import Tokens


class Lineage:
    """Records, for every position so far, the beam slot that each hypothesis descends from."""

    def __init__(self, width: int):
        self.width = width
        self.slots: Int[Tensor, "G W L"] | None = None
        self.visible: Bool[Tensor, "G 1 W L*W"] | None = None
        """Whether each key belongs to a hypothesis's own history, or None if all keys do."""

    def extend(self, ids: Int[Tensor, "N"]) -> None:
        """Add the next position, at which the hypotheses have the tokens `ids`."""
        if self.width == 1:
            return
        every = torch.arange(self.width, device=ids.device)
        new_slots = every.expand(len(ids) // self.width, -1)[..., None]
        self.slots = new_slots if self.slots is None else torch.cat([self.slots, new_slots], dim=-1)
        self.visible = (self.slots[..., None] == every).flatten(2).unsqueeze(1)

    def select(self, rows: Int[Tensor, "M"]) -> None:
        """Keep only the hypotheses at indices `rows`, in that order."""
        if self.slots is not None:
            self.slots = self.slots.flatten(0, 1)[rows].unflatten(0, (-1, self.width))


def _side_by_side(heads: Float[Tensor, "N H 1 K"], width: int) -> Float[Tensor, "G H W K"]:
    """Arrange the hypotheses of a sentence as queries of one attention call."""
    return heads.transpose(1, 2).flatten(0, 1).unflatten(0, (-1, width)).transpose(1, 2)


class LayerCache:
    """The cached keys and values of one layer, for the positions so far and for the memory."""

    def __init__(
        self,
        lineage: Lineage,
        max_length: int,
        memory: tuple[Float[Tensor, "G H S K"], Float[Tensor, "G H S K"], Tokens] | None = None,
    ):
        """Start empty; the first position allocates a buffer for `max_length` positions.

        `memory` holds the memory's keys, values and tokens, if the layer has cross-attention.
        """
        self.lineage = lineage
        self.max_length = max_length
        self.used = 0
        self.key: Tensor
        self.value: Tensor
        self.memory = None
        if memory is not None:
            key, value, source = memory
            self.memory = key.transpose(2, 3).contiguous().mT, value.contiguous(), source

    def extended(
        self,
        query: Float[Tensor, "N H 1 K"],
        key: Float[Tensor, "N H 1 K"],
        value: Float[Tensor, "N H 1 K"],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Append a position. Return its queries, all keys and values, and the attention mask."""
        width = self.lineage.width
        query, key, value = (_side_by_side(heads, width) for heads in (query, key, value))
        if self.used == 0:
            groups, heads, _, head_dim = key.shape
            size = self.max_length * width
            # Store keys in the layout that the matmul reads, so that no step has to copy them.
            self.key = key.new_empty(groups, heads, head_dim, size).transpose(2, 3)
            self.value = value.new_empty(groups, heads, size, head_dim)
        added = slice(self.used, self.used + width)
        self.key[:, :, added] = key
        self.value[:, :, added] = value
        self.used += width
        past = slice(self.used)
        return query, self.key[:, :, past], self.value[:, :, past], self.lineage.visible

    def at_memory(
        self, query: Float[Tensor, "N H 1 K"]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return the queries, the memory's keys and values, and the attention mask."""
        assert self.memory is not None
        key, value, source = self.memory
        return _side_by_side(query, self.lineage.width), key, value, source.keys

    def keep(self, groups: Int[Tensor, "F"]) -> None:
        """Keep only the sentences at indices `groups`."""

        def selected(buffer: Tensor) -> Tensor:
            new = torch.empty_like(buffer[: len(groups)])
            new[:, :, : self.used] = buffer[groups, :, : self.used]
            return new

        self.key, self.value = selected(self.key), selected(self.value)
        if self.memory is not None:
            key, value, source = self.memory
            self.memory = (
                key.index_select(0, groups),
                value.index_select(0, groups),
                source.picked(groups),
            )


class CachedDecoding:
    """Incremental decoding, one position per step, with cached keys and values.

    `step` runs a stack on the tokens of one position, with one cache per layer.
    """

    def __init__(
        self,
        step: Callable[[Tensor, Tokens, Sequence[LayerCache]], Tensor],
        caches: Sequence[LayerCache],
        lineage: Lineage,
    ):
        self.step = step
        self.caches = caches
        self.lineage = lineage
        self.position = 0

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Feed one token per hypothesis and return the stack's output at its position."""
        self.lineage.extend(ids)
        x = self.step(ids, Tokens(start=self.position), self.caches)
        self.position += 1
        return x

    def select(self, rows: Int[Tensor, "M"], groups: Int[Tensor, "F"] | None) -> None:
        """Keep only the hypotheses at indices `rows`, and the sentences at `groups` unless None."""
        self.lineage.select(rows)
        if groups is not None:
            for cache in self.caches:
                cache.keep(groups)


class PrefixDecoding:
    """Decoding that re-runs the whole prefix at each step.

    It is slower, but correct for norms whose statistics depend on other positions or hypotheses,
    because each step sees exactly the prefix decoded so far. `run` maps prefixes `[N, L]`, `memory`
    and its tokens to the model's output; a language model ignores the memory and its tokens.
    """

    def __init__(
        self,
        run: Callable[[Tensor, Tensor, Tokens], Tensor],
        memory: Shaped[Tensor, "N *_"],
        source: Tokens,
    ):
        self.run, self.memory, self.source = run, memory, source
        self.prefix = torch.empty(len(memory), 0, dtype=torch.long, device=memory.device)

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Append one token per sequence and return the model's output at its position."""
        self.prefix = torch.cat([self.prefix, ids[:, None]], dim=1)
        return self.run(self.prefix, self.memory, self.source)[:, -1]

    def select(self, rows: Int[Tensor, "M"], groups: Int[Tensor, "F"] | None) -> None:
        """Keep only the hypotheses `rows`, in that order."""
        self.prefix = self.prefix[rows]
        if groups is not None:
            self.memory, self.source = self.memory[rows], self.source.picked(rows)
