"""The encoder-decoder Transformer of Vaswani et al. 2017, with any norm and placement.

The file defines a layer, then a stack, then the model. The placement builds the residual around
each sub-layer. Each tensor is passed with its own tokens, so a norm on the target cannot be given
the source's padding mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.errors import UserError
from normlab.models.attention import Attention
from normlab.models.base import (
    Anatomy,
    Decoding,
    Fold,
    Stack,
    StackArchitecture,
    TextToText,
    incremental,
)
from normlab.models.cache import CachedDecoding, LayerCache, Lineage, PrefixDecoding
from normlab.models.layers import FeedForward, Linear, soft_cap
from normlab.models.stack_builder import StackBuilder
from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Place, Placement, Residual, StackName

Sharing = Literal["all", "target", "none"]


class Branch(NamedTuple):
    """A sub-layer with its place, its residual connection and its `readers`.

    `readers` are the linear layers that read the sub-layer's input.
    """

    place: Place
    residual: Residual
    sublayer: Attention | FeedForward
    readers: Sequence[Linear]


class Layer(nn.Module):
    """A Transformer layer: self-attention, optional cross-attention, then feed-forward.

    `W` is the width passed between layers: `D`, or `n D` if the placement keeps `n` residual
    streams. `branches` are the sub-layers in the order in which they run.
    """

    def __init__(self, builder: StackBuilder, place: Place, *, cross: bool):
        super().__init__()
        self.path = f"{place.stack}.{place.layer}"
        places = [place.at("self"), *([place.at("cross")] if cross else []), place.at("ffn")]
        residuals = builder.residuals(places)
        attention = self.self_attention = builder.self_attention(places[0])
        self.self_residual = residuals[0]
        readers = [attention.readers(attention.qkv_proj)]
        self.cross_attention = self.cross_residual = None
        if cross:
            memory = self.cross_attention = builder.cross_attention(places[1])
            self.cross_residual = residuals[1]
            readers.append(memory.readers(memory.q_proj))
        feed_forward = self.feed_forward = builder.feed_forward(places[-1])
        self.ffn_residual = residuals[-1]
        readers.append([feed_forward.fc1])
        sublayers = [attention, *([memory] if cross else []), feed_forward]
        self.branches = [*map(Branch, places, residuals, sublayers, readers)]
        for branch in self.branches:
            branch.residual.path = branch.sublayer.path = branch.place.path
        self._center()

    def forward(
        self,
        x: Float[Tensor, "B P W"],
        tokens: Tokens,
        memory: Float[Tensor, "B S D"] | None = None,
        source: Tokens | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B P W"]:
        """Return the layer's output. With a cache, `x` holds only the next position."""
        x = self.self_residual(x, tokens, lambda h: self.self_attention(h, tokens, cache))
        if self.cross_residual is not None and (cross := self.cross_attention) is not None:
            x = self.cross_residual(x, tokens, lambda h: cross(h, tokens, memory, source, cache))
        return self.ffn_residual(x, tokens, lambda h: self.feed_forward(h, tokens))

    def _center(self) -> None:
        """Center the linear layers in front of norms that have `center_weights` set.

        A norm on the stream reads the sum of all sub-layer outputs, so the last linear layer of
        each sub-layer is centered. The embedding, also part of that sum, is not.
        """
        inner = self.feed_forward.inner_norm
        norms = [m for m in self.modules() if isinstance(m, Norm) and m is not inner]
        self.feed_forward.fc1.centered = inner.center_weights
        last = [m.out_proj for m in self.children() if isinstance(m, Attention)]
        for linear in (*last, self.feed_forward.fc2):
            linear.centered = any(norm.center_weights for norm in norms)

    def folds(self) -> Sequence[Fold]:
        """Return the norms whose output is read only by the first linear layers of a branch."""
        return [
            Fold(branch.residual, branch.residual.branch_norm, into=branch.readers)
            for branch in self.branches
            if branch.residual.branch_norm is not None
        ]


class TransformerStack(Stack):
    """An encoder or a decoder: embedding, opening, layers and final norm.

    A decoder is causal and has cross-attention if there is an encoder. `embedding` must have the
    attributes `norm` and `max_positions`. `other` is the number of layers in the model's other
    stack, or 0 if there is none.
    """

    def __init__(
        self,
        embedding: nn.Module,
        builder: StackBuilder,
        name: StackName,
        *,
        num_layers: int,
        other: int = 0,
    ):
        super().__init__()
        self.embedding: Any = embedding
        self.both_ways = name == "encoder"
        self.opening = builder.placement.opening(builder.norms, builder.sizes.dim, name)
        place = Place(
            stack=name,
            layer=0,
            layers=num_layers,
            sublayer="self",
            other_layers=other,
            heads=builder.sizes.num_heads,
        )
        cross = name == "decoder" and other > 0
        self.layers: Any = nn.ModuleList(
            Layer(builder, replace(place, layer=number), cross=cross)
            for number in range(num_layers)
        )
        self.final_norm = builder.placement.final(builder.norms, builder.sizes.dim, name)

    def forward(
        self,
        ids: Int[Tensor, "B P"] | Float[Tensor, "B H W C"],
        tokens: Tokens,
        memory: Float[Tensor, "B S D"] | None = None,
        source: Tokens | None = None,
        *,
        added: Float[Tensor, "B P D"] | None = None,
    ) -> Float[Tensor, "B P D"]:
        """Return the output, given the encoder's output `memory` and its tokens `source`.

        `added` holds extra vectors that are added to the embedding.
        """
        x = self.opening(self.embedding(ids, tokens, added), tokens)
        for layer in self.layers:
            x = layer(x, tokens, memory, source)
        return self.final_norm(x, tokens)

    def step(
        self, ids: Int[Tensor, "N"], tokens: Tokens, caches: Sequence[LayerCache]
    ) -> Float[Tensor, "N D"]:
        """Return the output at the next position of `N` sequences, using one cache per layer."""
        x = self.opening(self.embedding(ids[:, None], tokens), tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer.forward(x, tokens, cache=cache)  # not compiled, because caches grow
        return self.final_norm(x, tokens)[:, 0]

    def anatomy(self) -> Anatomy:
        return Anatomy(
            entry=self.embedding.norm,
            first=self.opening,
            last=self,
            both_ways=self.both_ways,
            max_positions=self.embedding.max_positions,
            blocks=self.layers,
        )


@dataclass(frozen=True, kw_only=True)
class Seq2SeqArchitecture(StackArchitecture):
    """Architecture settings of an encoder-decoder Transformer.

    Attributes:
        share_embeddings: `all` uses one matrix for source, target and output, which needs a joint
            vocabulary; `target` shares one between target and output; `none` uses three.
    """

    takes = TextToText
    encoder_layers: int
    decoder_layers: int
    share_embeddings: Sharing

    def __post_init__(self) -> None:
        if self.fixnorm and self.share_embeddings == "none":
            raise UserError(
                "model.fixnorm=true needs an output layer tied to the embedding, but "
                "model.share_embeddings=none ties nothing; set it to all or target"
            )

    def make(self, spec: TextToText, placement: Placement, norms: Norms) -> "Seq2Seq":
        self.check_positions(spec.longest)
        return Seq2Seq(self, spec, StackBuilder(self, placement, norms))


class Seq2Seq(nn.Module):
    """An encoder, a decoder and the output projection to the target vocabulary."""

    def __init__(self, sizes: Seq2SeqArchitecture, spec: TextToText, builder: StackBuilder):
        super().__init__()
        source_tokens = builder.tokens(spec.source_vocab, spec.pad_id)
        target_tokens = output = source_tokens
        if sizes.share_embeddings != "all":
            target_tokens = output = builder.tokens(spec.target_vocab, spec.pad_id)
        elif spec.source_vocab != spec.target_vocab:
            raise UserError(
                "model.share_embeddings=all needs one vocabulary for both languages, not two of "
                f"{spec.source_vocab} and {spec.target_vocab} entries; set "
                "task.joint_vocabulary=true or model.share_embeddings=target"
            )
        if sizes.share_embeddings == "none":
            output = builder.output_table(spec.target_vocab)
        source = builder.embedding("encoder", source_tokens, scaled=True)
        target = builder.embedding("decoder", target_tokens, scaled=True)
        depth, other = sizes.encoder_layers, sizes.decoder_layers
        self.encoder = TransformerStack(source, builder, "encoder", num_layers=depth, other=other)
        self.decoder = TransformerStack(target, builder, "decoder", num_layers=other, other=depth)
        self.output = output
        self.logit_cap = sizes.logit_cap

    def encode(self, ids: Int[Tensor, "B S"], source: Tokens) -> Float[Tensor, "B S D"]:
        """Return the encoder's output, the memory that the decoder attends to."""
        return self.encoder(ids, source)

    def forward(
        self,
        source_ids: Int[Tensor, "B S"],
        source: Tokens,
        target_ids: Int[Tensor, "B P"],
        target: Tokens,
    ) -> Float[Tensor, "B P D"]:
        """Return the decoder's output under teacher forcing; `project` maps it to logits."""
        return self.decoder(target_ids, target, self.encode(source_ids, source), source)

    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return logits over the target vocabulary."""
        return soft_cap(F.linear(x, self.output.table), self.logit_cap)

    def start_decoding(
        self, memory: Float[Tensor, "G S D"], source: Tokens, *, width: int, max_length: int
    ) -> CachedDecoding | PrefixDecoding:
        """Start decoding `width` hypotheses per sentence, with a cache if the norms allow it."""
        if not incremental(self.decoder):

            def run(ids: Tensor, memory: Tensor, source: Tokens) -> Tensor:
                return self.decoder(ids, Tokens(), memory, source)

            memory = memory.repeat_interleave(width, dim=0)
            return PrefixDecoding(run, memory, source.repeated(width))
        lineage = Lineage(width)
        caches = [
            LayerCache(lineage, max_length, layer.cross_attention.project_memory(memory, source))
            for layer in self.decoder.layers
        ]
        return CachedDecoding(self.decoder.step, caches, lineage)

    def decode_step(self, ids: Int[Tensor, "N"], state: Decoding) -> Float[Tensor, "N V"]:
        """Append one token to each hypothesis and return the logits of the next token."""
        return self.project(state.advance(ids))

    def folds(self) -> Sequence[Fold]:
        """Return the encoder's final norm, which folds into every decoder layer's `kv_proj`."""
        readers = [layer.cross_attention.kv_proj for layer in self.decoder.layers]
        return [Fold(self.encoder, "final_norm", into=readers)]
