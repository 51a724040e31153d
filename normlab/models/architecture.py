"""What the stacks of all models are made of: sizes, dropout, positions, and extra norms."""

from dataclasses import dataclass, fields
from typing import ClassVar

from torch import nn

from normlab.models.embedding import Positions, StreamEmbedding
from normlab.models.feed_forward import Activation
from normlab.models.layers import LayerShape
from normlab.models.linear import Embedding
from normlab.models.qk_norm import QkNorm
from normlab.models.spec import Longest, ModelArchitecture, Text
from normlab.placements.base import NormFactory, Placement


@dataclass(frozen=True, kw_only=True)
class StackArchitecture(ModelArchitecture):
    """Sizes of a stack, and the norms beside those that its placement sets.

    Attributes:
        qk_norm: the norm of an attention's heads (see `qk_norm`); `qk_length` is the length of
            sequences that its first scale goes by.
        fixnorm: token embeddings have unit length where they are used, input and output, and the
            input is multiplied by sqrt(dim) (Nguyen and Salazar 2019, section 2.2).

    Raises ValueError naming a size that is not above 0.
    """

    sites: ClassVar[tuple[str, ...]] = ("ffn_inner_norm", "embedding_norm")
    dim: int
    ffn_dim: int
    num_heads: int
    activation: Activation
    attention_dropout: float
    activation_dropout: float
    positions: Positions
    max_positions: int
    ffn_inner_norm: NormFactory
    embedding_norm: NormFactory
    qk_norm: QkNorm = "none"
    qk_length: int = 64
    fixnorm: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            size = getattr(self, field.name)
            if field.type in (int, "int") and size < 1:
                raise ValueError(f"model.{field.name}={size} must be above 0")

    def check_positions(self, longest: Longest) -> None:
        """Raise ValueError where a sequence of the task has more tokens than there are places."""
        if longest.tokens > self.max_positions:
            raise ValueError(
                f"{longest.of} {longest.tokens} tokens, and model.max_positions="
                f"{self.max_positions}: {longest.cure}"
            )

    def layer_shape(self) -> LayerShape:
        """Return what the layers need to know."""
        return LayerShape(
            dim=self.dim,
            num_heads=self.num_heads,
            ffn_dim=self.ffn_dim,
            activation=self.activation,
            ffn_inner_norm=self.ffn_inner_norm,
            attention_dropout=self.attention_dropout,
            activation_dropout=self.activation_dropout,
            qk_norm=self.qk_norm,
            qk_length=self.qk_length,
        )

    def token_embedding(self, vocab: int, *, pad_id: int | None = None) -> Embedding:
        """Build a token embedding."""
        return Embedding(vocab, self.dim, padding_idx=pad_id, unit=self.fixnorm)

    def entry(self, tokens: Embedding, *, scale: float) -> StreamEmbedding:
        """Build the entry of a stream: its tokens' embedding times `scale`, with positions."""
        return StreamEmbedding(
            tokens,
            scale=self.dim**0.5 if self.fixnorm else scale,
            positions=self.positions,
            max_positions=self.max_positions,
            norm=self.embedding_norm,
            dropout=self.dropout,
        )


@dataclass(frozen=True, kw_only=True)
class TextArchitecture(StackArchitecture):
    """Sizes of a model of one stream.

    Attributes:
        num_layers: layers of its one stack.
        scale_embeddings: multiply token embeddings by sqrt(dim), as sinusoidal positions of
            amplitude 1 ask for; BERT and GPT-2 do not.
    """

    takes = Text
    num_layers: int
    scale_embeddings: bool

    def make(self, spec: Text, encoder: Placement, decoder: Placement) -> nn.Module:
        """Build a causal language model, which is all decoder, or BERT, which is all encoder."""
        from normlab.models.causal_lm import CausalLM
        from normlab.models.masked_lm import MaskedLM

        self.check_positions(spec.longest)
        if spec.causal:
            return CausalLM(self, decoder=decoder, vocab=spec.vocab, pad_id=spec.pad_id)
        return MaskedLM(self, encoder=encoder, vocab=spec.vocab, pad_id=spec.pad_id)

    def stream_embedding(self, tokens: Embedding) -> StreamEmbedding:
        """Build the entry of the stream, whose token embedding is `tokens`."""
        return self.entry(tokens, scale=self.dim**0.5 if self.scale_embeddings else 1.0)
