"""BERT: a bidirectional encoder with a head for masked tokens and one for pairs of segments.

Devlin et al. 2019, sections 3 and 3.1. With `placement=post`, `norm@embedding_norm=ln` and learned
positions it is their model, weight for weight.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.models.architecture import TextArchitecture
from normlab.models.linear import Embedding, Linear
from normlab.models.stacks import Encoder
from normlab.norms.base import Stream
from normlab.placements.base import Placement

SEGMENTS = 2


class MaskedLM(nn.Module):
    """Encoder, masked-token head with the token embedding as its output, and pair head.

    The norm of the masked-token head is the placement's, over the masked tokens of the batch.
    """

    def __init__(self, arch: TextArchitecture, *, encoder: Placement, vocab: int, pad_id: int):
        super().__init__()
        tokens = arch.token_embedding(vocab, pad_id=pad_id)
        self.encoder = Encoder(
            arch.stream_embedding(tokens), arch.layer_shape(), encoder, num_layers=arch.num_layers
        )
        self.segments = Embedding(SEGMENTS, arch.dim)
        self.token_head = Linear(arch.dim, arch.dim)
        self.token_norm = encoder.norm(arch.dim)
        self.token_bias = nn.Parameter(torch.zeros(vocab))
        self.pooler = Linear(arch.dim, arch.dim)
        self.pair_head = Linear(arch.dim, 2)

    def forward(
        self, ids: Int[Tensor, "B P"], stream: Stream, segments: Int[Tensor, "B P"]
    ) -> Float[Tensor, "B P D"]:
        """Return the stream after all layers; `segments` are 0 in the first and 1 in the second."""
        return self.encoder(ids, stream, self.segments(segments))

    def token_logits(
        self, x: Float[Tensor, "B P D"], places: Int[Tensor, "B M"], real: Int[Tensor, "N"]
    ) -> Float[Tensor, "N V"]:
        """Return logits of the masked tokens alone, row by row.

        `places` are their positions in each row, filled up to the longest row; `real` are the flat
        indices of the N that are no filling.
        """
        masked = torch.zeros_like(places, dtype=torch.bool)
        masked.view(-1).index_fill_(0, real, True)
        chosen = x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        hidden = self.token_norm(F.gelu(self.token_head(chosen)), Stream(masked))
        hidden = hidden.flatten(0, 1).index_select(0, real)
        return F.linear(hidden, self.encoder.embedding.tokens.table, self.token_bias)

    def pair_logits(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B 2"]:
        """Return logits of (the second segment follows the first, it does not), from token 0."""
        return self.pair_head(self.pooler(x[:, 0]).tanh())
