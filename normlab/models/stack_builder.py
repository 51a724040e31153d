"""Builds the parts of Transformer stacks from an architecture, a placement and norms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from normlab.models.attention import CrossAttention, FullNorm, HeadNorm, SelfAttention, qk_sites
from normlab.models.base import StackArchitecture
from normlab.models.layers import (
    Embedding,
    FeedForward,
    InputEmbedding,
    Linear,
    OutputLayer,
    OutputTable,
    Sinusoids,
    position_table,
)
from normlab.norms.base import NoNorm, Norm
from normlab.placements.base import (
    Norms,
    Place,
    Placement,
    Residual,
    Role,
    Site,
    StackName,
)


@dataclass(frozen=True)
class StackBuilder:
    """Builds the embeddings, sub-layers and residuals of a stack."""

    sizes: StackArchitecture
    placement: Placement
    norms: Norms

    def residuals(self, places: Sequence[Place]) -> Sequence[Residual]:
        """Build the residuals of one layer."""
        return self.placement.residuals(self.norms, self.sizes.dim, places)

    def self_attention(self, place: Place) -> SelfAttention:
        """Build a self-attention sub-layer, causal in a decoder."""
        sizes, causal = self.sizes, place.stack == "decoder"
        width = sizes.dim // sizes.num_heads
        rotary = sizes.rope.in_layer(place.layer, width) if sizes.positions == "rope" else None
        return SelfAttention(sizes.dim, causal=causal, rotary=rotary, **self._attention(place))

    def cross_attention(self, place: Place) -> CrossAttention:
        """Build a cross-attention sub-layer."""
        return CrossAttention(self.sizes.dim, **self._attention(place))

    def feed_forward(self, place: Place) -> FeedForward:
        """Build a feed-forward sub-layer."""
        sizes, hidden = self.sizes, self.sizes.hidden
        inner = self.norms.optional(f"{place.path}.inner", hidden)
        return FeedForward(
            sizes.dim,
            hidden,
            activation=sizes.activation,
            gated=sizes.gated,
            inner_norm=inner or NoNorm(hidden),
            dropout=sizes.activation_dropout,
            linear=partial(self._linear, place),
            hidden_norm=self._inside("hidden", hidden, place),
        )

    @property
    def deviation(self) -> float | None:
        """The standard deviation of normal initial weights, or None for Xavier initialization."""
        return 0.02 if self.sizes.init == "normal" else None

    def tokens(self, vocab: int, pad_id: int) -> Embedding:
        """Build the token embedding for a vocabulary."""
        return Embedding(
            vocab,
            self.sizes.dim,
            padding_idx=pad_id,
            unit=self.sizes.fixnorm,
            deviation=self.deviation,
        )

    def output_table(self, vocab: int) -> OutputTable:
        """Build the weights of an untied output layer, initialized like a token embedding."""
        return OutputTable(vocab, self.sizes.dim, deviation=self.deviation)

    def positions(self, count: int) -> Sinusoids | Embedding | None:
        """Build the position vectors, with half the tokens' deviation if `init=normal` (GPT-2)."""
        half = None if self.deviation is None else self.deviation / 2
        return position_table(self.sizes.positions, count, self.sizes.dim, half)

    def output(self, count: int, *, bias: bool = False) -> OutputLayer:
        """Build an untied output layer for `count` tokens or classes."""
        return OutputLayer(self.sizes.dim, count, bias=bias, deviation=self.deviation)

    def vectors(self, count: int) -> Embedding:
        """Build learned vectors that are added to the tokens or concatenated with them."""
        return Embedding(count, self.sizes.dim, deviation=self.deviation)

    def head(self, in_features: int, out_features: int) -> Linear:
        """Build a linear layer that comes before or after the layers of the stack."""
        return Linear(in_features, out_features, deviation=self.deviation)

    def embedding_norm(self, stack: StackName) -> Norm:
        """Build the embedding norm, which is the identity unless a rule sets it."""
        dim = self.sizes.dim
        return self.norms.optional(f"{stack}.embedding", dim) or NoNorm(dim)

    def embedding(self, stack: StackName, tokens: Embedding, *, scaled: bool) -> InputEmbedding:
        """Build a stack's input embedding, with tokens multiplied by sqrt(dim) if `scaled`."""
        sizes = self.sizes
        return InputEmbedding(
            tokens,
            scale=math.sqrt(sizes.dim) if scaled or sizes.fixnorm else 1.0,
            positions=self.positions(sizes.max_positions),
            max_positions=sizes.max_positions,
            norm=self.embedding_norm(stack),
            dropout=sizes.dropout,
        )

    def _linear(self, place: Place, in_features: int, out_features: int, *roles: Role) -> Linear:
        wiring, xavier = self.placement, self.deviation is None
        gains = [
            wiring.weight_factor(role, place) * (wiring.xavier[role] if xavier else 1.0)
            for role in roles
        ]
        return Linear(
            in_features, out_features, gains=gains, bias=self.sizes.bias, deviation=self.deviation
        )

    def _inside(self, site: Site, dim: int, place: Place) -> nn.Module | None:
        return self.placement.inner(self.norms, site, dim, place)

    def _attention(self, place: Place) -> dict[str, Any]:
        sizes, dim, heads = self.sizes, self.sizes.dim, self.sizes.num_heads
        width = dim // heads
        sites = qk_sites(
            sizes.qk_norm, dim=width, heads=heads, length=sizes.qk_length, eps=sizes.qk_eps
        )
        for site, around in sites.items():
            if isinstance(around, HeadNorm | FullNorm) and isinstance(around.norm, Norm):
                around.norm.path = f"{place.path}.{site}"
        for site in ("q", "k", "v"):
            if (norm := self._inside(site, width, place)) is not None:
                sites[site] = HeadNorm(norm)
        sites |= {site: self._inside(site, dim, place) for site in ("mix", "out")}
        return {
            "num_heads": heads,
            "dropout": sizes.attention_dropout,
            "score_cap": sizes.score_cap,
            "gate": sizes.attention_gate,
            "linear": partial(self._linear, place),
            "sites": sites,
        }
