"""One layer of the encoder and one of the decoder.

A layer is a list of sub-layers, each wrapped in a residual that the placement built. Every line of
a `forward` binds a stream to its own tokens, so a norm on the target stream cannot be given the
source's padding.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from normlab.models.attention import AttentionSites, CrossAttention, SelfAttention
from normlab.models.cache import LayerCache, SelfCache
from normlab.models.feed_forward import Activation, FeedForward
from normlab.models.qk_norm import QkNorm, qk_sites
from normlab.norms.base import Stream
from normlab.placements.base import NormFactory, Placement


@dataclass(frozen=True)
class LayerShape:
    """What all layers of a stack share."""

    dim: int
    num_heads: int
    ffn_dim: int
    activation: Activation
    ffn_inner_norm: NormFactory
    attention_dropout: float
    activation_dropout: float
    qk_norm: QkNorm = "none"
    qk_length: int = 64

    def self_attention(self, placement: Placement, *, causal: bool) -> SelfAttention:
        """Build a self-attention of this shape."""
        return SelfAttention(
            self.dim,
            num_heads=self.num_heads,
            dropout=self.attention_dropout,
            causal=causal,
            init_gain=placement.init_gain,
            sites=self._sites(),
        )

    def cross_attention(self, placement: Placement) -> CrossAttention:
        """Build a cross-attention of this shape."""
        return CrossAttention(
            self.dim,
            num_heads=self.num_heads,
            dropout=self.attention_dropout,
            init_gain=placement.init_gain,
            sites=self._sites(),
        )

    def _sites(self) -> AttentionSites:
        return qk_sites(self.qk_norm, dim=self.dim // self.num_heads, length=self.qk_length)

    def feed_forward(self, placement: Placement) -> FeedForward:
        """Build a feed-forward sub-layer of this shape."""
        return FeedForward(
            self.dim,
            self.ffn_dim,
            activation=self.activation,
            inner_norm=self.ffn_inner_norm,
            dropout=self.activation_dropout,
            init_gain=placement.init_gain,
        )


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, shape: LayerShape, placement: Placement, *, causal: bool = False):
        super().__init__()
        self.self_attention = shape.self_attention(placement, causal=causal)
        self.self_residual = placement.residual(shape.dim)
        self.feed_forward = shape.feed_forward(placement)
        self.ffn_residual = placement.residual(shape.dim)

    def forward(self, x: Float[Tensor, "B S D"], source: Stream) -> Float[Tensor, "B S D"]:
        """Transform the source stream."""
        x = self.self_residual(x, source, lambda h: self.self_attention(h, source))
        return self.ffn_residual(x, source, lambda h: self.feed_forward(h, source))

    def step(
        self, x: Float[Tensor, "N 1 D"], stream: Stream, cache: SelfCache
    ) -> Float[Tensor, "N 1 D"]:
        """Transform one more position of `N` sequences, using and growing the cache."""
        x = self.self_residual(
            x, stream, lambda h: cache.attend_self(self.self_attention, h, stream)
        )
        return self.ffn_residual(x, stream, lambda h: self.feed_forward(h, stream))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the memory, then feed-forward."""

    def __init__(self, shape: LayerShape, placement: Placement):
        super().__init__()
        self.self_attention = shape.self_attention(placement, causal=True)
        self.self_residual = placement.residual(shape.dim)
        self.cross_attention = shape.cross_attention(placement)
        self.cross_residual = placement.residual(shape.dim)
        self.feed_forward = shape.feed_forward(placement)
        self.ffn_residual = placement.residual(shape.dim)

    def forward(
        self,
        y: Float[Tensor, "B T D"],
        target: Stream,
        memory: Float[Tensor, "B S D"],
        source: Stream,
    ) -> Float[Tensor, "B T D"]:
        """Transform the target stream, looking at the memory."""
        y = self.self_residual(y, target, lambda h: self.self_attention(h, target))
        y = self.cross_residual(
            y, target, lambda h: self.cross_attention(h, target, memory, source)
        )
        return self.ffn_residual(y, target, lambda h: self.feed_forward(h, target))

    def step(
        self, y: Float[Tensor, "N 1 D"], target: Stream, cache: LayerCache
    ) -> Float[Tensor, "N 1 D"]:
        """Transform one more position of `N` hypotheses, using and growing the cache."""
        y = self.self_residual(
            y, target, lambda h: cache.attend_self(self.self_attention, h, target)
        )
        y = self.cross_residual(
            y, target, lambda h: cache.attend_cross(self.cross_attention, h, target)
        )
        return self.ffn_residual(y, target, lambda h: self.feed_forward(h, target))
