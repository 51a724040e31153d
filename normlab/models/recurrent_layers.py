"""Recurrent layers, with optional norms on their linear products and cell state.

    RNN    h = tanh(a)                                   a = N_h(W_h h) + N_x(W_x x) + b
    LSTM   c = s(f) c + s(i) tanh(g),  h = s(o) tanh(N_c(c))    with a split into i, f, o, g
    GRU    h = s(z) h + (1 - s(z)) tanh(N(W_x x) + b + s(r) (N(W_h h) + b'))   a split into r, z

N_x, N_h and N_c are the norms named `input`, `hidden` and `cell`; s is the sigmoid. As in Cooijmans
et al. 2017 (section 3), N_x and N_h have no shift; the shared bias replaces it. `norm_shifts` gives
them shifts as well, as in Ba et al. 2016 (appendix). As in that paper, the GRU's candidate has its
own norms. As in torch, the candidate also has two biases, b and b'.

An input norm that does not pool over time gets the whole input product at once. The hidden and cell
norms always get one position at a time. Padding leaves the state unchanged.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.errors import UserError
from normlab.models.layers import orthogonal_, xavier_
from normlab.norms.base import Norm
from normlab.norms.running import RunningNorm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms

RecurrentInit = Literal["orthogonal", "identity"]
InputStatistics = Literal["step", "sequence"]
State = tuple[Tensor, ...]
"""The hidden state, `[B, 1, D]`, and in an LSTM also the cell state, which has the same shape."""


@dataclass(frozen=True)
class Step:
    """One time step of a batch.

    `tokens` are passed to the norms. `running` is True for sequences that have not ended, or None
    if none has ended.
    """

    tokens: Tokens
    running: Bool[Tensor, "B 1 1"] | None


def steps(x: Float[Tensor, "B P F"], tokens: Tokens) -> list[Step]:
    """Return one `Step` per position of a batch."""
    if tokens.valid is None:
        return [Step(Tokens(start=tokens.start + t), None) for t in range(x.shape[1])]
    all_real = tokens.known(x) == tokens.valid.numel()
    columns = tokens.valid.split(1, dim=1)
    return [
        Step(Tokens(column, start=tokens.start + t), None if all_real else column.unsqueeze(-1))
        for t, column in enumerate(columns)
    ]


@dataclass(frozen=True, kw_only=True)
class CellShape:
    """Settings shared by all recurrent layers. A layer with more settings subclasses this class.

    Attributes:
        dim: number of units.
        input_statistics: whether a norm that pools over time gets the input product one step at a
            time or all at once (Laurent et al. 2016).
        norm_shifts: whether the input and hidden norms learn a shift in addition to the bias.
        gain: factor on the norms' initial gains; None means 0.1 for norms that pool over the batch
            (Cooijmans et al. 2017, section 5.1), otherwise 1.
        recurrent_init: initial recurrent weights: orthogonal in every block, except that with
            `identity` the candidate's block is the identity matrix.
        learned_start: whether the initial state is learned, starting at 0 (Cooijmans et al. 2017,
            section 5); otherwise it is fixed at 0.
    """

    dim: int
    input_statistics: InputStatistics
    norm_shifts: bool
    gain: float | None
    recurrent_init: RecurrentInit
    learned_start: bool = False


@dataclass(frozen=True, kw_only=True)
class LstmShape(CellShape):
    """Settings of an LSTM layer. `forget_bias` is the initial bias of the forget gate."""

    forget_bias: float


@dataclass(frozen=True)
class CellNorms:
    """Builds the norms of one recurrent layer, and sets them up for recurrence."""

    norms: Norms
    shape: CellShape
    path: str

    @torch.no_grad()
    def required(self, place: str, dim: int) -> Norm:
        """Build the norm for a place in the layer, and configure it for recurrence.

        Sets its initial gain and `by_position`, and removes its shift if the bias replaces it.
        Raises UserError if the norm would always output its bias.
        """
        norm = self.norms.required(f"{self.path}.{place}", dim)
        if norm.pools == {"position"} and not self.takes_sequence(place, norm):
            raise UserError(
                f"norm@{place}_norm: {type(norm).__name__} pools only over time, but a recurrence "
                "gives it one position at a time, so it would always output its bias; choose "
                f"another norm, for example norm@{place}_norm=ln"
            )
        if isinstance(norm.weight, nn.Parameter):
            gain = self.shape.gain
            gain = (0.1 if "batch" in norm.pools else 1.0) if gain is None else gain
            norm.start_gain(gain, key="model.gain")
        if place != "cell" and not self.shape.norm_shifts:
            norm.forgo_shift()
        if not self.takes_sequence(place, norm):
            norm.by_position = True
            if isinstance(norm, RunningNorm):
                norm.pool.one_position = True
        return norm

    def inside(self, part: str) -> "CellNorms":
        """Return the builder for a part of the layer."""
        return replace(self, path=f"{self.path}.{part}")

    def takes_sequence(self, place: str, norm: Norm) -> bool:
        """Return whether a norm pools over positions and gets whole sequences."""
        whole = place == "input" and self.shape.input_statistics == "sequence"
        return whole and "position" in norm.pools


class RecurrentCell(nn.Module, ABC):
    """Base class of recurrent layers; a subclass defines one time step.

    The weight matrices have `blocks` blocks of `dim` rows each, with the candidate last; `states`
    is the number of tensors in the state.
    """

    sublayer: ClassVar[str] = "recurrent"
    blocks: ClassVar[int]
    states: ClassVar[int] = 1

    def __init__(self, shape: CellShape, norms: CellNorms, in_features: int):
        super().__init__()
        self.shape = shape
        self.norms = norms
        self.path = norms.path
        rows = self.blocks * shape.dim
        self.input_weight = nn.Parameter(torch.empty(rows, in_features))
        self.hidden_weight = nn.Parameter(torch.empty(rows, shape.dim))
        self.bias = nn.Parameter(torch.zeros(rows))
        start = torch.zeros(self.states, 1, 1, shape.dim)
        self.start = nn.Parameter(start) if shape.learned_start else None

    @property
    def incremental(self) -> bool:
        """Whether the layer can process one position at a time in eval mode."""
        return all(
            norm.incremental or not self.norms.takes_sequence("input", norm)
            for norm in self.input_norms
        )

    @property
    @abstractmethod
    def input_norms(self) -> Sequence[Norm]:
        """The norms of the input product, in the order of its rows."""

    @abstractmethod
    def step(self, u: Float[Tensor, "B 1 G"], state: State, tokens: Tokens) -> State:
        """Return the next state, given `u`, the normalized input product at one position."""

    def begin(self, x: Tensor, count: int) -> State:
        """Return the initial state of `count` sequences, with the device and dtype of `x`."""
        if self.start is not None:
            return tuple(self.start.to(x).expand(-1, count, -1, -1))
        return tuple(x.new_zeros(count, 1, self.shape.dim) for _ in range(self.states))

    def forward(
        self, x: Float[Tensor, "B P F"], tokens: Tokens, state: State, positions: Sequence[Step]
    ) -> tuple[Float[Tensor, "B P D"], State]:
        """Return the hidden states at all positions, and the final state."""
        inputs = self.inputs(x, tokens, positions)
        hidden: list[Tensor] = []
        for u, position in zip(inputs.split(1, dim=1), positions, strict=True):
            new = self.step(u, state, position.tokens)
            if position.running is not None:
                pairs = zip(new, state, strict=True)
                new = tuple(torch.where(position.running, after, was) for after, was in pairs)
            state = new
            hidden.append(state[0])
        return torch.cat(hidden, dim=1), state

    def inputs(
        self, x: Float[Tensor, "B P F"], tokens: Tokens, positions: Sequence[Step]
    ) -> Float[Tensor, "B P G"]:
        """Return the normalized input product at all positions, plus the bias."""
        product = F.linear(x, self.input_weight)
        parts = product.split([norm.dim for norm in self.input_norms], dim=-1)
        normed = [
            self._over_positions(norm, part, tokens, positions)
            for norm, part in zip(self.input_norms, parts, strict=True)
        ]
        return (torch.cat(normed, dim=-1) if normed[1:] else normed[0]) + self.bias

    def _over_positions(
        self, norm: Norm, x: Tensor, tokens: Tokens, positions: Sequence[Step]
    ) -> Tensor:
        fits = norm.most_positions is None or tokens.start + x.shape[1] <= norm.most_positions
        if self.norms.takes_sequence("input", norm) or ("position" not in norm.pools and fits):
            return norm(x, tokens)
        columns = zip(x.split(1, dim=1), positions, strict=True)
        return torch.cat([norm(column, position.tokens) for column, position in columns], dim=1)

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Initialize the weights by block: Xavier for the input, orthogonal for the recurrence."""
        for block in self.input_weight.chunk(self.blocks):
            xavier_(block, generator)
        for number, block in enumerate(self.hidden_weight.chunk(self.blocks)):
            orthogonal_(block, generator)  # always drawn, so that other blocks get the same values
            if self.shape.recurrent_init == "identity" and number == self.blocks - 1:
                nn.init.eye_(block)


class Rnn(RecurrentCell):
    """The plain recurrent layer (Elman 1990): `h = tanh(N_h(W_h h) + N_x(W_x x) + b)`."""

    blocks: ClassVar[int] = 1

    def __init__(self, shape: CellShape, norms: CellNorms, in_features: int):
        super().__init__(shape, norms, in_features)
        self.input_norm = norms.required("input", shape.dim)
        self.hidden_norm = norms.required("hidden", shape.dim)

    @property
    def input_norms(self) -> Sequence[Norm]:
        return (self.input_norm,)

    def step(self, u: Float[Tensor, "B 1 G"], state: State, tokens: Tokens) -> State:
        product = F.linear(state[0], self.hidden_weight)
        return (torch.tanh(u + self.hidden_norm(product, tokens)),)


class Lstm(RecurrentCell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000).

    With batch norm this implements equations 6 to 8 of Cooijmans et al. 2017; with layer norm,
    equations 20 to 22 of Ba et al. 2016, except for the shifts (`norm_shifts`).
    """

    blocks: ClassVar[int] = 4
    states: ClassVar[int] = 2

    def __init__(self, shape: LstmShape, norms: CellNorms, in_features: int):
        super().__init__(shape, norms, in_features)
        self.forget_bias = shape.forget_bias
        rows = 4 * shape.dim
        self.input_norm = norms.required("input", rows)
        self.hidden_norm = norms.required("hidden", rows)
        self.cell_norm = norms.required("cell", shape.dim)

    @property
    def input_norms(self) -> Sequence[Norm]:
        return (self.input_norm,)

    def step(self, u: Float[Tensor, "B 1 G"], state: State, tokens: Tokens) -> State:
        hidden, cell = state
        product = F.linear(hidden, self.hidden_weight)
        a = u + self.hidden_norm(product, tokens)
        gates, candidate = a.split([3 * self.shape.dim, self.shape.dim], dim=-1)
        i, f, o = gates.sigmoid().chunk(3, dim=-1)
        cell = torch.addcmul(f * cell, i, candidate.tanh())
        return o * torch.tanh(self.cell_norm(cell, tokens)), cell

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        super().initialize(generator)
        self.bias.zero_()
        self.bias[self.shape.dim : 2 * self.shape.dim] = self.forget_bias


class _Candidate(nn.Module):
    """The norms and the inner bias of a GRU's candidate."""

    def __init__(self, shape: CellShape, norms: CellNorms):
        super().__init__()
        self.input_norm = norms.required("input", shape.dim)
        self.hidden_norm = norms.required("hidden", shape.dim)
        self.bias = nn.Parameter(torch.zeros(shape.dim))


class Gru(RecurrentCell):
    """A gated recurrent unit (Cho et al. 2014).

    As in torch, the reset gate is applied after the product with the hidden weights.
    """

    blocks: ClassVar[int] = 3

    def __init__(self, shape: CellShape, norms: CellNorms, in_features: int):
        super().__init__(shape, norms, in_features)
        self.input_norm = norms.required("input", 2 * shape.dim)
        self.hidden_norm = norms.required("hidden", 2 * shape.dim)
        self.candidate = _Candidate(shape, norms.inside("candidate"))

    @property
    def input_norms(self) -> Sequence[Norm]:
        return (self.input_norm, self.candidate.input_norm)

    def step(self, u: Float[Tensor, "B 1 G"], state: State, tokens: Tokens) -> State:
        (hidden,) = state
        dims = [2 * self.shape.dim, self.shape.dim]
        of_gates, of_candidate = F.linear(hidden, self.hidden_weight).split(dims, dim=-1)
        to_gates, to_candidate = u.split(dims, dim=-1)
        r, z = (to_gates + self.hidden_norm(of_gates, tokens)).sigmoid().chunk(2, dim=-1)
        inner = self.candidate.hidden_norm(of_candidate, tokens) + self.candidate.bias
        new = torch.addcmul(to_candidate, r, inner).tanh()
        return (torch.lerp(new, hidden, z),)
