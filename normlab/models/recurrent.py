"""Recurrent networks: their sizes, and a stack of layers that reads forward."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.distributed import gather_objects, world
from normlab.dropout import Dropout
from normlab.models.anatomy import Anatomy, Stack
from normlab.models.cells import (
    Cell,
    CellShape,
    Gru,
    Lstm,
    LstmShape,
    Rnn,
    State,
    steps,
)
from normlab.models.spec import Image, ModelArchitecture, Spec, Text
from normlab.norms.base import Stream, running_norms
from normlab.placements.base import Placement
from normlab.placements.pre import Pre

Read = Literal["pixels", "rows", "permuted"]


@dataclass(frozen=True, kw_only=True)
class RecurrentArchitecture(CellShape, ModelArchitecture):
    """Sizes and choices of a recurrent network; those of its layers are `CellShape`'s.

    A new kind of layer is a subclass of `Cell` and one of this class that names it as its `cell`;
    `sites` are the norms that the layer places, and what else it must know are further fields. The
    embedding is as wide as a layer.

    Attributes:
        num_layers: one upon the other.
        initial_noise: standard deviation of the hidden state that training begins with, which is 0
            otherwise. Where all sequences begin alike, the first steps have no variance to divide
            by (Cooijmans et al. 2017, section 5.2).
        read: the steps of a picture: its pixels by rows, its rows, or its pixels in another order.
        permutation_seed: which order, of all; the same in every run.
        dropout: of what a layer gives to the next and to the output (Zaremba et al. 2014).
    """

    takes: ClassVar[tuple[type[Spec], ...]] = (Text, Image)
    sites: ClassVar[tuple[str, ...]] = ("input_norm", "hidden_norm")
    stacks: ClassVar[tuple[str, ...]] = ()
    cell: ClassVar[type[Cell]]
    num_layers: int
    initial_noise: float
    read: Read
    permutation_seed: int

    def make(self, spec: Any, encoder: Placement, decoder: Placement) -> nn.Module:
        """Build a language model that reads forward, or a classifier of pictures."""
        from normlab.models.recurrent_lm import RecurrentLM
        from normlab.models.recurrent_pictures import RecurrentClassifier

        if type(encoder) is not Pre:
            raise ValueError(
                "placement: a recurrent network has its norms inside its layers, whatever the "
                "placement; leave it out"
            )
        if isinstance(spec, Image):
            return RecurrentClassifier(self, spec)
        if not spec.causal:
            raise ValueError(
                "a recurrent network reads forward, and this task tells tokens from those on both "
                "sides: give model=bert_tiny, bert_mini, bert_small or bert_base, or task=lm"
            )
        return RecurrentLM(self, spec)

    def stack(self, in_features: int) -> "Recurrent":
        """Build the layers, for inputs of a width."""
        return Recurrent(self, in_features)


class RnnArchitecture(RecurrentArchitecture):
    """Sizes of a plain recurrent network."""

    cell = Rnn


class GruArchitecture(RecurrentArchitecture):
    """Sizes of a network of gated recurrent units."""

    cell = Gru


@dataclass(frozen=True, kw_only=True)
class LstmArchitecture(RecurrentArchitecture, LstmShape):
    """Sizes of a network of LSTM layers, whose cell state has a norm as well."""

    sites: ClassVar[tuple[str, ...]] = (*RecurrentArchitecture.sites, "cell_norm")
    cell = Lstm


class Noise(nn.Module):
    """Normal noise of a stream of its own, so that dropout's goes on as it would without.

    Its place in the stream is saved with the weights: an interrupted run goes on with the same.
    """

    key: Tensor
    drawn: Tensor

    def __init__(self, deviation: float):
        super().__init__()
        self.deviation = deviation
        self.register_buffer("key", torch.zeros((), dtype=torch.int64))
        self.register_buffer("drawn", torch.zeros((), dtype=torch.int64))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the key of the stream."""
        self.key.random_(generator=generator)
        self.drawn.zero_()

    def forward(self, x: Float[Tensor, "B 1 D"]) -> Float[Tensor, "B 1 D"]:
        """Return `x` with noise added in training, `x` itself in evaluation."""
        if not self.training:
            return x
        number = int(self.drawn) * world().size + world().rank
        self.drawn += 1
        stream = torch.Generator().manual_seed((int(self.key) + number) % 2**63)
        noise = torch.empty(x.shape, dtype=torch.float32).normal_(generator=stream)
        return x + self.deviation * noise.to(x)


class Recurrent(Stack):
    """Recurrent layers one upon the other."""

    def __init__(self, arch: RecurrentArchitecture, in_features: int):
        super().__init__()
        widths = [in_features, *[arch.dim] * (arch.num_layers - 1)]
        self.layers = nn.ModuleList(arch.cell(arch, width) for width in widths)
        self.dropout = Dropout(arch.dropout)
        self.noise = Noise(arch.initial_noise) if arch.initial_noise else None

    @property
    def cells(self) -> list[Cell]:
        """The layers."""
        return [layer for layer in self.layers if isinstance(layer, Cell)]

    @property
    def incremental(self) -> bool:
        """Whether, in eval, positions may come one at a time."""
        return all(cell.incremental for cell in self.cells)

    def begin(self, x: Tensor, count: int) -> list[State]:
        """Return the states that `count` sequences begin with, where `x` is computed."""
        states = [cell.begin(x, count) for cell in self.cells]
        if self.noise is not None:
            states = [(self.noise(hidden), *rest) for hidden, *rest in states]
        return states

    def forward(self, x: Float[Tensor, "B P F"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return the hidden states of the last layer at each position."""
        length = x.shape[1]
        x, stream = self._aligned(x, stream)
        found, _ = self.advance(x, stream, self.begin(x, x.shape[0]))
        return found[:, :length]

    def anatomy(self) -> Anatomy:
        """Return its ends; its layers are loops over positions, which are not compiled."""
        return Anatomy(entry=self, first=self, last=self, both_ways=False, room=None, blocks=())

    def advance(
        self, x: Float[Tensor, "B P F"], stream: Stream, states: list[State]
    ) -> tuple[Float[Tensor, "B P D"], list[State]]:
        """Return the hidden states of the last layer, and all states after the last position."""
        positions = steps(x, stream)
        after: list[State] = []
        for cell, state in zip(self.cells, states, strict=True):
            x, state = cell(x, stream, state, positions)
            x = self.dropout(x)
            after.append(state)
        return x, after

    def _aligned(self, x: Tensor, stream: Stream) -> tuple[Tensor, Stream]:
        """Pad to the longest sequence of all processes, where norms go in step over them."""
        if not self.training or world().size == 1:
            return x, stream
        if not any(norm.sync for norm in running_norms(self)):
            return x, stream
        more = max(gather_objects(x.shape[1])) - x.shape[1]
        if more == 0:
            return x, stream
        valid = nn.functional.pad(stream.real(x), (0, more))
        return nn.functional.pad(x, (0, 0, 0, more)), Stream(valid, stream.start)
