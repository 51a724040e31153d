"""One layer of the encoder and one of the decoder.

A layer is a list of sub-layers, each wrapped in a residual that the placement built. Every line of
a `forward` binds a stream to its own tokens, so a norm on the target stream cannot be given the
source's padding.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from normlab.models.attention import AttentionSites, CrossAttention, HeadNorm, SelfAttention
from normlab.models.cache import LayerCache, SelfCache
from normlab.models.feed_forward import Activation, FeedForward
from normlab.models.qk_norm import QkNorm, qk_sites
from normlab.norms.base import Stream
from normlab.placements.base import NormFactory, Place, Placement, Site


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

    def self_attention(self, placement: Placement, place: Place, *, causal: bool) -> SelfAttention:
        """Build a self-attention of this shape."""
        return SelfAttention(
            self.dim,
            num_heads=self.num_heads,
            dropout=self.attention_dropout,
            causal=causal,
            gain=lambda role: placement.gain(role, place),
            sites=self._sites(placement, place),
        )

    def cross_attention(self, placement: Placement, place: Place) -> CrossAttention:
        """Build a cross-attention of this shape."""
        return CrossAttention(
            self.dim,
            num_heads=self.num_heads,
            dropout=self.attention_dropout,
            gain=lambda role: placement.gain(role, place),
            sites=self._sites(placement, place),
        )

    def feed_forward(self, placement: Placement, place: Place) -> FeedForward:
        """Build a feed-forward sub-layer of this shape."""
        return FeedForward(
            self.dim,
            self.ffn_dim,
            activation=self.activation,
            inner_norm=self.ffn_inner_norm,
            dropout=self.activation_dropout,
            gain=lambda role: placement.gain(role, place),
            hidden_norm=placement.inner("hidden", self.ffn_dim, place, heads=1),
        )

    def _sites(self, placement: Placement, place: Place) -> AttentionSites:
        def at(site: Site, dim: int) -> nn.Module | None:
            return placement.inner(site, dim, place, heads=self.num_heads)

        def on_heads(site: Site) -> nn.Module | None:
            norm = at(site, self.dim // self.num_heads)
            return None if norm is None else HeadNorm(norm)

        asked = qk_sites(
            self.qk_norm,
            dim=self.dim // self.num_heads,
            heads=self.num_heads,
            length=self.qk_length,
        )
        return AttentionSites(
            q_norm=on_heads("q") or asked.q_norm,
            k_norm=on_heads("k") or asked.k_norm,
            v_norm=on_heads("v") or asked.v_norm,
            mix_norm=at("mix", self.dim),
            out_norm=at("out", self.dim),
        )


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(
        self, shape: LayerShape, placement: Placement, place: Place, *, causal: bool = False
    ):
        super().__init__()
        places = [place.at("self"), place.at("ffn")]
        own, ffn = placement.residuals(shape.dim, places)
        self.self_attention = shape.self_attention(placement, places[0], causal=causal)
        self.self_residual = own
        self.feed_forward = shape.feed_forward(placement, places[1])
        self.ffn_residual = ffn

    def forward(self, x: Float[Tensor, "B S W"], source: Stream) -> Float[Tensor, "B S W"]:
        """Transform the source stream."""
        x = self.self_residual(x, source, lambda h: self.self_attention(h, source))
        return self.ffn_residual(x, source, lambda h: self.feed_forward(h, source))

    def step(
        self, x: Float[Tensor, "N 1 W"], stream: Stream, cache: SelfCache
    ) -> Float[Tensor, "N 1 W"]:
        """Transform one more position of `N` sequences, using and growing the cache."""
        x = self.self_residual(
            x, stream, lambda h: cache.attend_self(self.self_attention, h, stream)
        )
        return self.ffn_residual(x, stream, lambda h: self.feed_forward(h, stream))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the memory, then feed-forward.

    `W` is the width of what passes from layer to layer: `D`, or `n D` of a placement with streams
    of its own.
    """

    def __init__(self, shape: LayerShape, placement: Placement, place: Place):
        super().__init__()
        places = [place.at("self"), place.at("cross"), place.at("ffn")]
        own, cross, ffn = placement.residuals(shape.dim, places)
        self.self_attention = shape.self_attention(placement, places[0], causal=True)
        self.self_residual = own
        self.cross_attention = shape.cross_attention(placement, places[1])
        self.cross_residual = cross
        self.feed_forward = shape.feed_forward(placement, places[2])
        self.ffn_residual = ffn

    def forward(
        self,
        y: Float[Tensor, "B P W"],
        target: Stream,
        memory: Float[Tensor, "B S D"],
        source: Stream,
    ) -> Float[Tensor, "B P W"]:
        """Transform the target stream, looking at the memory."""
        y = self.self_residual(y, target, lambda h: self.self_attention(h, target))
        y = self.cross_residual(
            y, target, lambda h: self.cross_attention(h, target, memory, source)
        )
        return self.ffn_residual(y, target, lambda h: self.feed_forward(h, target))

    def step(
        self, y: Float[Tensor, "N 1 W"], target: Stream, cache: LayerCache
    ) -> Float[Tensor, "N 1 W"]:
        """Transform one more position of `N` hypotheses, using and growing the cache."""
        y = self.self_residual(
            y, target, lambda h: cache.attend_self(self.self_attention, h, target)
        )
        y = self.cross_residual(
            y, target, lambda h: cache.attend_cross(self.cross_attention, h, target)
        )
        return self.ffn_residual(y, target, lambda h: self.feed_forward(h, target))
