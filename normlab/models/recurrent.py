"""Recurrent networks: their settings, a stack of recurrent layers, and two models that use it.

The language model predicts each token from the earlier tokens of a text of any length; the
classifier reads an image as a sequence (Le et al. 2015).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.distributed.process_group import gather_objects, world
from normlab.dropout import Dropout
from normlab.errors import UserError
from normlab.models.base import (
    Anatomy,
    GeneratesText,
    Image,
    ModelArchitecture,
    Spec,
    Stack,
    Text,
)
from normlab.models.cache import PrefixDecoding
from normlab.models.layers import Embedding, OutputLayer
from normlab.models.recurrent_layers import (
    CellNorms,
    CellShape,
    Gru,
    Lstm,
    LstmShape,
    RecurrentCell,
    Rnn,
    State,
    steps,
)
from normlab.norms.running import running_norms
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Placement

Read = Literal["pixels", "rows", "permuted"]


@dataclass(frozen=True, kw_only=True)
class RecurrentArchitecture(CellShape, ModelArchitecture):
    """Architecture settings of a recurrent network; `CellShape` has the settings of its layers.

    To add a kind of layer, subclass `RecurrentCell`. Then subclass this class, set `cell`, and add
    a field for each extra setting of the layer. The embedding is as wide as a layer.

    Attributes:
        num_layers: number of stacked layers.
        initial_noise: standard deviation of the noise on the initial hidden state in training; 0
            for none. Without noise all sequences start from the same state, so batch norm has no
            variance to divide by in the first steps (Cooijmans et al. 2017, section 5.2).
        read: the part of an image that one step reads: a pixel, row by row (`pixels`); a whole row
            (`rows`); or a pixel, in a fixed random order (`permuted`).
        permutation_seed: seed of the pixel order of `read=permuted`, which is the same in every
            run.
        dropout: dropout rate on each layer's output (Zaremba et al. 2014).
    """

    takes: ClassVar[tuple[type[Spec], ...]] = (Text, Image)
    own_norms: ClassVar[str | None] = "a recurrent network has its norms inside its layers"
    cell: ClassVar[type[RecurrentCell]]
    num_layers: int
    initial_noise: float
    read: Read
    permutation_seed: int

    def make(
        self, spec: Text | Image, placement: Placement, norms: Norms
    ) -> "RecurrentLM | RecurrentClassifier":
        if isinstance(spec, Image):
            return RecurrentClassifier(self, spec, norms)
        if not spec.causal:
            raise UserError(
                "a recurrent network reads left to right, but this task predicts tokens from both "
                "sides: use model=bert_tiny, bert_mini, bert_small or bert_base, or task=lm"
            )
        return RecurrentLM(self, spec, norms)


class RnnArchitecture(RecurrentArchitecture):
    """Architecture settings of a plain recurrent network."""

    cell = Rnn


class GruArchitecture(RecurrentArchitecture):
    """Architecture settings of a GRU network."""

    cell = Gru


@dataclass(frozen=True, kw_only=True)
class LstmArchitecture(RecurrentArchitecture, LstmShape):
    """Architecture settings of an LSTM network, whose cell state has a norm as well."""

    cell = Lstm


class Noise(nn.Module):
    """Gaussian noise from a separate generator, so that it does not change dropout masks.

    The number of draws is saved with the weights, so that a resumed run draws the same noise.
    """

    belongs_to_run: ClassVar[tuple[str, ...]] = ("key", "drawn")  # see `start_from`
    key: Tensor
    drawn: Tensor

    def __init__(self, deviation: float):
        super().__init__()
        self.deviation = deviation
        self.register_buffer("key", torch.zeros((), dtype=torch.int64))
        self.register_buffer("drawn", torch.zeros((), dtype=torch.int64))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the seed of the noise."""
        self.key.random_(generator=generator)
        self.drawn.zero_()

    def forward(self, x: Float[Tensor, "B 1 D"]) -> Float[Tensor, "B 1 D"]:
        """Add noise to `x` in training; return `x` unchanged in eval mode."""
        if not self.training:
            return x
        number = int(self.drawn) * world().size + world().rank
        self.drawn += 1
        draw = torch.Generator().manual_seed((int(self.key) + number) % 2**63)
        noise = torch.empty(x.shape, dtype=torch.float32).normal_(generator=draw)
        return x + self.deviation * noise.to(x)


class StackInput(nn.Module):
    """The identity on the input of a stack, as a module for hooks (see `Anatomy.entry`)."""

    def forward(self, x: Float[Tensor, "B P F"], tokens: Tokens) -> Float[Tensor, "B P F"]:
        return x


class Recurrent(Stack):
    """A stack of recurrent layers."""

    def __init__(self, sizes: RecurrentArchitecture, norms: Norms, in_features: int):
        super().__init__()
        widths = [in_features, *[sizes.dim] * (sizes.num_layers - 1)]
        self.layers = nn.ModuleList(
            sizes.cell(sizes, CellNorms(norms, sizes, f"recurrent.{number}"), width)
            for number, width in enumerate(widths)
        )
        self.dropout = Dropout(sizes.dropout)
        self.noise = Noise(sizes.initial_noise) if sizes.initial_noise else None
        self.entry = StackInput()

    @property
    def cells(self) -> list[RecurrentCell]:
        """The layers, typed as `RecurrentCell`."""
        return [layer for layer in self.layers if isinstance(layer, RecurrentCell)]

    @property
    def incremental(self) -> bool:
        """Whether the stack can process one position at a time in eval mode."""
        return all(cell.incremental for cell in self.cells)

    def begin(self, x: Tensor, count: int) -> list[State]:
        """Return the initial states of `count` sequences, with the device and dtype of `x`."""
        states = [cell.begin(x, count) for cell in self.cells]
        if self.noise is not None:
            states = [(self.noise(hidden), *rest) for hidden, *rest in states]
        return states

    def forward(self, x: Float[Tensor, "B P F"], tokens: Tokens) -> Float[Tensor, "B P D"]:
        """Return the hidden states of the last layer at each position."""
        length = x.shape[1]
        x, tokens = self._aligned(self.entry(x, tokens), tokens)
        hidden, _ = self.advance(x, tokens, self.begin(x, x.shape[0]))
        return hidden[:, :length]

    def anatomy(self) -> Anatomy:  # the layers loop over positions and are not compiled
        return Anatomy(
            entry=self.entry, first=self, last=self, both_ways=False, max_positions=None, blocks=()
        )

    def advance(
        self, x: Float[Tensor, "B P F"], tokens: Tokens, states: list[State]
    ) -> tuple[Float[Tensor, "B P D"], list[State]]:
        """Return the last layer's hidden states, and all layers' states after the last position."""
        positions = steps(x, tokens)
        after: list[State] = []
        for cell, state in zip(self.cells, states, strict=True):
            x, state = cell(x, tokens, state, positions)
            x = self.dropout(x)
            after.append(state)
        return x, after

    def _aligned(self, x: Tensor, tokens: Tokens) -> tuple[Tensor, Tokens]:
        """Pad to the longest sequence on any process if norms communicate at each step."""
        if not self.training or world().size == 1 or not running_norms(self):
            return x, tokens
        more = max(gather_objects(x.shape[1])) - x.shape[1]
        if more == 0:
            return x, tokens
        valid = nn.functional.pad(tokens.real(x), (0, more))
        return nn.functional.pad(x, (0, 0, 0, more)), Tokens(valid, tokens.start)


class RecurrentLM(GeneratesText):
    """A language model: token embedding, recurrent layers and an output layer."""

    def __init__(self, sizes: RecurrentArchitecture, spec: Text, norms: Norms):
        super().__init__()
        self.max_positions = None
        self.embedding = Embedding(spec.vocab, sizes.dim, padding_idx=spec.pad_id)
        self.recurrent = Recurrent(sizes, norms, sizes.dim)
        self.output = OutputLayer(sizes.dim, spec.vocab)

    def forward(self, ids: Int[Tensor, "B P"], tokens: Tokens) -> Float[Tensor, "B P D"]:
        return self.recurrent(self.embedding(ids), tokens)

    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        return self.output(x)

    def start_decoding(self, count: int, *, max_length: int) -> "StateDecoding | PrefixDecoding":
        if self.recurrent.incremental:
            return StateDecoding(self.embedding, self.recurrent, count)
        empty = self.embedding.weight.new_empty(count, 0)
        return PrefixDecoding(lambda ids, *_: self(ids, Tokens()), empty, Tokens())


class StateDecoding:
    """Decoding with the layers' recurrent states, one position per step."""

    def __init__(self, embedding: Embedding, layers: Recurrent, count: int):
        self.embedding, self.layers = embedding, layers
        self.states = layers.begin(embedding.weight, count)
        self.position = 0

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Feed one token per sequence and return the last layer's hidden states."""
        tokens = Tokens(start=self.position)
        x = self.layers.entry(self.embedding(ids[:, None]), tokens)
        x, self.states = self.layers.advance(x, tokens, self.states)
        self.position += 1
        return x[:, 0]


class RecurrentClassifier(nn.Module):
    """An image classifier that reads an image step by step and classifies the last hidden state."""

    order: Tensor

    def __init__(self, sizes: RecurrentArchitecture, spec: Image, norms: Norms):
        super().__init__()
        self.read: Read = sizes.read
        pixels = spec.height * spec.width
        by_rows = sizes.read == "rows"
        features = spec.channels * (spec.width if by_rows else 1)
        self.recurrent = Recurrent(sizes, norms, features)
        self.classes = OutputLayer(sizes.dim, spec.classes)
        generator = torch.Generator().manual_seed(sizes.permutation_seed)
        self.register_buffer("order", torch.randperm(pixels, generator=generator), persistent=False)

    def forward(self, pixels: Float[Tensor, "B H W C"]) -> Float[Tensor, "B K"]:
        """Return a logit for each class."""
        return self.classes(self.recurrent(self.sequence(pixels), Tokens())[:, -1])

    def sequence(self, pixels: Float[Tensor, "B H W C"]) -> Float[Tensor, "B P F"]:
        """Return images as sequences of rows or of pixels, row by row or in `order`."""
        if self.read == "rows":
            return pixels.flatten(2)
        steps = pixels.flatten(1, 2)
        return steps[:, self.order] if self.read == "permuted" else steps
