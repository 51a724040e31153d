"""A recurrent language model: embedded tokens, recurrent layers, and an output layer."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.models.linear import Embedding, Linear
from normlab.models.recurrent import Recurrent, RecurrentArchitecture
from normlab.models.spec import Text
from normlab.norms.base import Stream


class RecurrentLM(nn.Module):
    """Tells each token from those before it. It takes texts of any length."""

    def __init__(self, arch: RecurrentArchitecture, spec: Text):
        super().__init__()
        self.embedding = Embedding(spec.vocab, arch.dim, padding_idx=spec.pad_id)
        self.recurrent = arch.stack(arch.dim)
        self.output = Linear(arch.dim, spec.vocab)

    @property
    def room(self) -> int | None:
        """The most tokens that it takes: any number."""
        return None

    def forward(self, ids: Int[Tensor, "B P"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return the last layer's states; `project` turns them into logits of what comes."""
        return self.recurrent(self.embedding(ids), stream)

    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return logits over the vocabulary."""
        return self.output(x)

    @property
    def incremental(self) -> bool:
        """Whether the norms let it decode one token at a time."""
        return self.recurrent.incremental

    def start_decoding(self, count: int, *, max_length: int) -> "StatefulText | PrefixStates":
        """Begin `count` sequences, in the fastest way that the norms allow."""
        if self.incremental:
            return StatefulText(self.embedding, self.recurrent, count)
        return PrefixStates(self, count)

    def decode_step(
        self, ids: Int[Tensor, "N"], state: "StatefulText | PrefixStates"
    ) -> Float[Tensor, "N V"]:
        """Return the logits that follow when each sequence is extended by its token in `ids`."""
        return self.project(state.advance(ids))


class StatefulText:
    """Decoding by the states of the layers: one position a step."""

    def __init__(self, embedding: Embedding, layers: Recurrent, count: int):
        self.embedding, self.layers = embedding, layers
        self.states = layers.begin(embedding.weight, count)
        self.position = 0

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Feed the next token of each sequence; return the last layer's states."""
        stream = Stream(start=self.position)
        x, self.states = self.layers.advance(self.embedding(ids[:, None]), stream, self.states)
        self.position += 1
        return x[:, 0]


class PrefixStates:
    """Decoding that runs the whole prefix anew, for norms that look at all of its input product."""

    def __init__(self, model: RecurrentLM, count: int):
        self.model = model
        device = model.embedding.weight.device
        self.prefix = torch.empty(count, 0, dtype=torch.long, device=device)

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Append the next token of each sequence; return the last layer's states."""
        self.prefix = torch.cat([self.prefix, ids[:, None]], dim=1)
        return self.model(self.prefix, Stream())[:, -1]
