"""The encoder-decoder Transformer of Vaswani et al. 2017, norms and placements left open."""

import math
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.models.architecture import StackArchitecture
from normlab.models.embedding import StreamEmbedding
from normlab.models.linear import Embedding
from normlab.models.spec import TextToText
from normlab.models.stacks import CachedDecoding, Decoder, Encoder, PrefixDecoding
from normlab.norms.base import Norm, Stream
from normlab.placements.base import Placement

Sharing = Literal["all", "target", "none"]


@dataclass(frozen=True, kw_only=True)
class Architecture(StackArchitecture):
    """Sizes of an encoder-decoder Transformer.

    Attributes:
        share_embeddings: `all` has one matrix for source, target and output (needs a joint
            vocabulary), `target` one for target and output, `none` three.
    """

    takes = TextToText
    encoder_layers: int
    decoder_layers: int
    share_embeddings: Sharing

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fixnorm and self.share_embeddings == "none":
            raise ValueError(
                "model.fixnorm=true needs an output that is tied to the embedding, and "
                "model.share_embeddings=none has three matrices: set it to all or target"
            )

    def make(self, spec: TextToText, encoder: Placement, decoder: Placement) -> "Seq2Seq":
        """Build the encoder-decoder model over the two vocabularies."""
        self.check_positions(spec.longest)
        return Seq2Seq(
            self,
            encoder=encoder,
            decoder=decoder,
            source_vocab=spec.source_vocab,
            target_vocab=spec.target_vocab,
            pad_id=spec.pad_id,
        )

    def stream_embedding(self, tokens: Embedding) -> StreamEmbedding:
        """Build the entry of a stream whose token embedding is `tokens`."""
        return self.entry(tokens, scale=math.sqrt(self.dim))


class Seq2Seq(nn.Module):
    """Encoder, decoder and the output projection onto the target vocabulary."""

    def __init__(
        self,
        arch: Architecture,
        *,
        encoder: Placement,
        decoder: Placement,
        source_vocab: int,
        target_vocab: int,
        pad_id: int,
    ):
        super().__init__()
        source_tokens = arch.token_embedding(source_vocab, pad_id=pad_id)
        target_tokens = output = source_tokens
        if arch.share_embeddings != "all":
            target_tokens = output = arch.token_embedding(target_vocab, pad_id=pad_id)
        elif source_vocab != target_vocab:
            raise ValueError(
                f"model.share_embeddings=all needs one vocabulary for both languages, got "
                f"{source_vocab} and {target_vocab} entries: set task.joint_vocabulary=true or "
                f"model.share_embeddings=target"
            )
        if arch.share_embeddings == "none":
            output = arch.token_embedding(target_vocab)
        shape = arch.layer_shape()
        self.encoder = Encoder(
            arch.stream_embedding(source_tokens),
            shape,
            encoder,
            num_layers=arch.encoder_layers,
            other_layers=arch.decoder_layers,
        )
        self.decoder = Decoder(
            arch.stream_embedding(target_tokens),
            shape,
            decoder,
            num_layers=arch.decoder_layers,
            other_layers=arch.encoder_layers,
        )
        self.output = output

    def encode(self, ids: Int[Tensor, "B S"], source: Stream) -> Float[Tensor, "B S D"]:
        """Return the memory of the source sentences."""
        return self.encoder(ids, source)

    def forward(
        self,
        source_ids: Int[Tensor, "B S"],
        source: Stream,
        target_ids: Int[Tensor, "B P"],
        target: Stream,
    ) -> Float[Tensor, "B P D"]:
        """Return the target stream under teacher forcing; `project` turns it into logits."""
        return self.decoder(target_ids, target, self.encode(source_ids, source), source)

    def project(self, stream: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return logits over the target vocabulary."""
        return nn.functional.linear(stream, self.output.table)

    @property
    def incremental(self) -> bool:
        """Whether the decoder's norms let it decode one token at a time."""
        return all(norm.incremental for norm in self.decoder.modules() if isinstance(norm, Norm))

    def start_decoding(
        self, memory: Float[Tensor, "G S D"], source: Stream, *, width: int, max_length: int
    ) -> CachedDecoding | PrefixDecoding:
        """Begin decoding `width` hypotheses a sentence, in the fastest way its norms allow."""
        if self.incremental:
            return CachedDecoding(self.decoder, memory, source, width=width, max_length=max_length)
        return PrefixDecoding(self.decoder, memory, source, width=width)

    def decode_step(
        self, ids: Int[Tensor, "N"], state: CachedDecoding | PrefixDecoding
    ) -> Float[Tensor, "N V"]:
        """Return the logits that follow when each hypothesis is extended by its token in `ids`."""
        return self.project(state.advance(ids))
