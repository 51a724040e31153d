"""Single-stack text models: a causal language model and BERT.

The causal language model is one stack with causal attention (Radford et al. 2019, GPT-2) whose
output layer is tied to the token embedding. BERT is an encoder with a masked-token head and a
segment-pair head (Devlin et al. 2019, sections 3 and 3.1); with `placement=post`,
`norm@embedding_norm=ln` and learned positions it has the same parameters as the published model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.errors import UserError
from normlab.models.base import Fold, GeneratesText, StackArchitecture, Text, incremental
from normlab.models.cache import CachedDecoding, LayerCache, Lineage, PrefixDecoding
from normlab.models.layers import Linear, soft_cap
from normlab.models.seq2seq import TransformerStack
from normlab.models.stack_builder import StackBuilder
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Placement

SEGMENTS = 2


@dataclass(frozen=True, kw_only=True)
class TextArchitecture(StackArchitecture):
    """Architecture settings of a single-stack text model.

    Attributes:
        num_layers: number of layers in the stack.
        scale_embeddings: whether token embeddings are multiplied by sqrt(dim), to match the
            amplitude 1 of sinusoidal positions; BERT and GPT-2 do not scale them.
        tied: whether the output layer shares the token embedding's weights.
    """

    takes = Text
    num_layers: int
    scale_embeddings: bool
    tied: bool = True

    def __post_init__(self) -> None:
        if self.fixnorm and not self.tied:
            raise UserError("model.fixnorm=true needs model.tied=true (a tied output layer)")

    def make(self, spec: Text, placement: Placement, norms: Norms) -> "CausalLM | MaskedLM":
        self.check_positions(spec.longest)
        kind = CausalLM if spec.causal else MaskedLM
        return kind(self, spec, StackBuilder(self, placement, norms))

    def stack(self, spec: Text, builder: StackBuilder) -> TransformerStack:
        """Build a decoder if `spec.causal`, otherwise an encoder, with its token embedding."""
        tokens = builder.tokens(spec.vocab, spec.pad_id)
        name = "decoder" if spec.causal else "encoder"
        entry = builder.embedding(name, tokens, scaled=self.scale_embeddings)
        return TransformerStack(entry, builder, name, num_layers=self.num_layers)

    def output(self, spec: Text, builder: StackBuilder) -> Linear | None:
        """Build the output layer, or return None if it is tied to the token embedding."""
        return None if self.tied else builder.output(spec.vocab)


class CausalLM(GeneratesText):
    """A causal language model, whose output layer may be tied to the token embedding."""

    def __init__(self, sizes: TextArchitecture, spec: Text, builder: StackBuilder):
        super().__init__()
        self.decoder = sizes.stack(spec, builder)
        self.output = sizes.output(spec, builder)
        self.logit_cap = sizes.logit_cap
        self.max_positions = sizes.max_positions

    def forward(self, ids: Int[Tensor, "B P"], tokens: Tokens) -> Float[Tensor, "B P D"]:
        return self.decoder(ids, tokens)

    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        if self.output is None:
            logits = F.linear(x, self.decoder.embedding.tokens.table)
        else:
            logits = self.output(x)
        return soft_cap(logits, self.logit_cap)

    def folds(self) -> Sequence[Fold]:
        """Return the final norm, which folds into an output layer that is not tied."""
        return [] if self.output is None else [Fold(self.decoder, "final_norm", (self.output,))]

    def start_decoding(self, count: int, *, max_length: int) -> CachedDecoding | PrefixDecoding:
        if not incremental(self):
            empty = self.decoder.embedding.tokens.weight.new_empty(count, 0)
            return PrefixDecoding(lambda ids, *_: self(ids, Tokens()), empty, Tokens())
        lineage = Lineage(1)
        caches = [LayerCache(lineage, max_length) for _ in self.decoder.layers]
        return CachedDecoding(self.decoder.step, caches, lineage)


class MaskedLM(nn.Module):
    """An encoder with a masked-token head and a segment-pair head (next-sentence prediction).

    The masked-token head is tied to the token embedding if `tied`. It has a norm at the path
    `encoder.token`, which sees only the masked tokens.
    """

    def __init__(self, sizes: TextArchitecture, spec: Text, builder: StackBuilder):
        super().__init__()
        dim = sizes.dim
        self.encoder = sizes.stack(spec, builder)
        self.segments = builder.vectors(SEGMENTS)
        self.token_head = builder.head(dim, dim)
        self.token_norm = builder.norms.required("encoder.token", dim)
        self.output = sizes.output(spec, builder)
        self.logit_cap = sizes.logit_cap
        self.token_bias = nn.Parameter(torch.zeros(spec.vocab))
        self.pooler = builder.head(dim, dim)
        self.pair_head = builder.output(2, bias=True)

    def forward(
        self, ids: Int[Tensor, "B P"], tokens: Tokens, segments: Int[Tensor, "B P"]
    ) -> Float[Tensor, "B P D"]:
        """Return the encoder's output. `segments` is 0 in the first segment and 1 in the second."""
        return self.encoder(ids, tokens, added=self.segments(segments))

    def token_logits(
        self, x: Float[Tensor, "B P D"], places: Int[Tensor, "B M"], real: Int[Tensor, "N"]
    ) -> Float[Tensor, "N V"]:
        """Return logits for the masked tokens only, row by row.

        `places` holds the masked positions of each row, padded to equal length; `real` holds the
        flat indices into `places` of its N entries that are not padding.
        """
        masked = torch.zeros_like(places, dtype=torch.bool)
        masked.view(-1).index_fill_(0, real, True)
        chosen = x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        hidden = self.token_norm(F.gelu(self.token_head(chosen)), Tokens(masked, rows=real))
        hidden = hidden.flatten(0, 1).index_select(0, real)
        output = self.output
        table = self.encoder.embedding.tokens.table if output is None else output.weight
        return soft_cap(F.linear(hidden, table, self.token_bias), self.logit_cap)

    def pair_logits(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B 2"]:
        """Return next-sentence logits from token 0; class 0 means the second segment follows."""
        return self.pair_head(self.pooler(x[:, 0]).tanh())

    def folds(self) -> Sequence[Fold]:
        """Return the final norm, which folds into the first linear layer of both heads."""
        return [Fold(self.encoder, "final_norm", into=(self.token_head, self.pooler))]
