"""A causal language model: one stack that attends backwards, its token embedding as its output.

Radford et al. 2019 (GPT-2), with norms and placement left open.
"""

from typing import TYPE_CHECKING, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.models.architecture import TextArchitecture
from normlab.models.cache import Lineage, SelfCache
from normlab.models.embedding import StreamEmbedding
from normlab.models.stacks import Encoder, require_incremental
from normlab.norms.base import Norm, Stream
from normlab.placements.base import Placement

if TYPE_CHECKING:
    from normlab.models.layers import EncoderLayer


class CausalLM(nn.Module):
    """A stack of layers with causal self-attention."""

    def __init__(self, arch: TextArchitecture, *, decoder: Placement, vocab: int, pad_id: int):
        super().__init__()
        tokens = arch.token_embedding(vocab, pad_id=pad_id)
        self.decoder = Encoder(
            arch.stream_embedding(tokens),
            arch.layer_shape(),
            decoder,
            num_layers=arch.num_layers,
            causal=True,
        )

    @property
    def room(self) -> int | None:
        """The most tokens that it takes."""
        return self.decoder.embedding.max_positions

    def forward(self, ids: Int[Tensor, "B P"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return the stream under teacher forcing; `project` turns it into logits of what comes."""
        return self.decoder(ids, stream)

    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return logits over the vocabulary."""
        return nn.functional.linear(x, self.decoder.embedding.tokens.table)

    @property
    def incremental(self) -> bool:
        """Whether the norms let it decode one token at a time."""
        return all(norm.incremental for norm in self.modules() if isinstance(norm, Norm))

    def start_decoding(self, count: int, *, max_length: int) -> "CachedText | PrefixText":
        """Begin `count` sequences, in the fastest way that the norms allow."""
        if self.incremental:
            return CachedText(self.decoder, max_length=max_length)
        return PrefixText(self.decoder, count)

    def decode_step(
        self, ids: Int[Tensor, "N"], state: "CachedText | PrefixText"
    ) -> Float[Tensor, "N V"]:
        """Return the logits that follow when each sequence is extended by its token in `ids`."""
        return self.project(state.advance(ids))


class CachedText:
    """Incremental decoding: one position a step, keys and values kept."""

    def __init__(self, stack: Encoder[StreamEmbedding], *, max_length: int):
        require_incremental(stack)
        self.stack = stack
        self.layers = cast("list[EncoderLayer]", list(stack.layers))
        self.position = 0
        self.caches = [SelfCache(Lineage(1), max_length=max_length) for _ in self.layers]

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Feed the next token of each sequence; return the stream at its position."""
        stream = Stream(start=self.position)
        x = self.stack.opening(self.stack.embedding(ids[:, None], stream), stream)
        for layer, cache in zip(self.layers, self.caches, strict=True):
            x = layer.step(x, stream, cache)
        self.position += 1
        return self.stack.final_norm(x, stream)[:, 0]


class PrefixText:
    """Decoding that runs the whole prefix anew at each step, for norms that look at all of it."""

    def __init__(self, stack: Encoder[StreamEmbedding], count: int):
        self.stack = stack
        device = stack.embedding.tokens.weight.device
        self.prefix = torch.empty(count, 0, dtype=torch.long, device=device)

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Append the next token of each sequence; return the stream at its position."""
        self.prefix = torch.cat([self.prefix, ids[:, None]], dim=1)
        stream = Stream()
        return self.stack(self.prefix, stream)[:, -1]
