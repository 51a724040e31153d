"""The encoder and the decoder: layers one upon the other, between what the placement puts there."""

from collections.abc import Iterator
from typing import Generic, Literal, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.models.anatomy import Anatomy, Stack
from normlab.models.cache import LayerCache, Lineage
from normlab.models.embedding import StreamEmbedding
from normlab.models.layers import DecoderLayer, EncoderLayer, LayerShape
from normlab.models.patches import PatchEmbedding
from normlab.norms.base import Norm, Stream
from normlab.placements.base import Place, Placement


def _places(
    stack: Literal["encoder", "decoder"], layers: int, other_layers: int
) -> Iterator[Place]:
    for layer in range(layers):
        yield Place(
            stack=stack, layer=layer, layers=layers, sublayer="self", other_layers=other_layers
        )


Entry = TypeVar("Entry", StreamEmbedding, PatchEmbedding)


class Encoder(Stack, Generic[Entry]):
    """Embedding, opening, `num_layers` encoder layers, closing norm.

    A causal one is a decoder without a memory. `other_layers` are those of the other stack.
    """

    embedding: Entry

    def __init__(
        self,
        embedding: Entry,
        shape: LayerShape,
        placement: Placement,
        *,
        num_layers: int,
        other_layers: int = 0,
        causal: bool = False,
    ):
        super().__init__()
        self.embedding = embedding
        self.causal = causal
        self.opening = placement.opening(shape.dim)
        places = _places("decoder" if causal else "encoder", num_layers, other_layers)
        self.layers = nn.ModuleList(
            EncoderLayer(shape, placement, place, causal=causal) for place in places
        )
        self.final_norm = placement.final(shape.dim)

    def forward(
        self,
        ids: Int[Tensor, "B P"] | Float[Tensor, "B H W C"],
        source: Stream,
        added: Float[Tensor, "B S D"] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Return the memory: the source stream after all layers (`added`: see the embedding)."""
        x = self.opening(self.embedding(ids, source, added), source)
        for layer in self.layers:
            x = layer(x, source)
        return self.final_norm(x, source)

    def anatomy(self) -> Anatomy:
        """Return its ends and its layers."""
        return Anatomy(
            entry=self.embedding.norm,
            first=self.opening,
            last=self,
            both_ways=not self.causal,
            room=self.embedding.max_positions,
            blocks=self.layers,
        )


class Decoder(Stack):
    """Embedding, opening, `num_layers` decoder layers, closing norm."""

    def __init__(
        self,
        embedding: StreamEmbedding,
        shape: LayerShape,
        placement: Placement,
        *,
        num_layers: int,
        other_layers: int,
    ):
        super().__init__()
        self.embedding = embedding
        self.opening = placement.opening(shape.dim)
        self.layers = nn.ModuleList(
            DecoderLayer(shape, placement, place)
            for place in _places("decoder", num_layers, other_layers)
        )
        self.final_norm = placement.final(shape.dim)

    def forward(
        self,
        ids: Int[Tensor, "B P"],
        target: Stream,
        memory: Float[Tensor, "B S D"],
        source: Stream,
    ) -> Float[Tensor, "B P D"]:
        """Return the target stream after all layers."""
        y = self.opening(self.embedding(ids, target), target)
        for layer in self.layers:
            y = layer(y, target, memory, source)
        return self.final_norm(y, target)

    def anatomy(self) -> Anatomy:
        """Return its ends and its layers."""
        return Anatomy(
            entry=self.embedding.norm,
            first=self.opening,
            last=self,
            both_ways=False,
            room=self.embedding.max_positions,
            blocks=self.layers,
        )


def require_incremental(model: nn.Module) -> None:
    """Refuse to decode one token at a time with a norm that needs others beside it.

    Raises ValueError naming the norms.
    """
    norms = [module for module in model.modules() if isinstance(module, Norm)]
    if waiting := sorted({type(norm).__name__ for norm in norms if not norm.incremental}):
        raise ValueError(
            f"{' and '.join(waiting)} cannot take one token at a time: statistics of a step alone "
            "are not those of a batch or a sentence; take running statistics "
            "(norm.eval_stats=running), or decode whole prefixes"
        )


class CachedDecoding:
    """Incremental decoding: one position a step, keys and values kept.

    Raises ValueError for a decoder with a norm that is not `incremental`.
    """

    def __init__(
        self,
        decoder: Decoder,
        memory: Float[Tensor, "G S D"],
        source: Stream,
        *,
        width: int,
        max_length: int,
    ):
        require_incremental(decoder)
        self.decoder = decoder
        self.layers = cast("list[DecoderLayer]", list(decoder.layers))
        self.position = 0
        self.lineage = Lineage(width)
        self.caches = [
            LayerCache(
                self.lineage,
                *layer.cross_attention.project_memory(memory, source),
                source,
                max_length=max_length,
            )
            for layer in self.layers
        ]

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Feed the next token of each hypothesis; return the stream at its position."""
        target = Stream(start=self.position)
        self.lineage.extend(ids)
        y = self.decoder.opening(self.decoder.embedding(ids[:, None], target), target)
        for layer, cache in zip(self.layers, self.caches, strict=True):
            y = layer.step(y, target, cache)
        self.position += 1
        return self.decoder.final_norm(y, target)[:, 0]

    def select(self, rows: Int[Tensor, "M"], groups: Int[Tensor, "F"] | None) -> None:
        """Keep the hypotheses `rows` in that order, and of the sentences only `groups`."""
        self.lineage.select(rows)
        if groups is not None:
            for cache in self.caches:
                cache.keep(groups)


class PrefixDecoding:
    """Decoding that runs the whole prefix anew at each step.

    Slower, and right for norms whose statistics need the other positions (or the other
    hypotheses): each step sees exactly the prefix that exists then.
    """

    def __init__(
        self, decoder: Decoder, memory: Float[Tensor, "G S D"], source: Stream, *, width: int
    ):
        self.decoder = decoder
        self.memory = memory.repeat_interleave(width, dim=0)
        self.source = source.repeated(width)
        self.prefix = torch.empty(len(self.memory), 0, dtype=torch.long, device=memory.device)

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Append the next token of each hypothesis; return the stream at its position."""
        self.prefix = torch.cat([self.prefix, ids[:, None]], dim=1)
        return self.decoder(self.prefix, Stream(), self.memory, self.source)[:, -1]

    def select(self, rows: Int[Tensor, "M"], groups: Int[Tensor, "F"] | None) -> None:
        """Keep the hypotheses `rows` in that order."""
        self.prefix = self.prefix[rows]
        if groups is not None:
            self.memory, self.source = self.memory[rows], self.source.picked(rows)
