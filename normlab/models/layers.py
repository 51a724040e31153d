"""Layers shared by all models, and their initialization.

Each layer draws its weights from a generator seeded by the run's seed and the layer's *name*. Two
models that differ only in their norms therefore have the same initial weights in all other layers,
whatever the build order. As in fairseq, projections are Xavier uniform, embeddings are N(0, 1/dim),
and biases are zero.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.errors import UserError
from normlab.models.base import Activation, Fold, Positions
from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class Linear(nn.Linear):
    """A linear layer whose weight rows form equal blocks, each with its own initialization gain.

    Query, key and value projections share one layer with three blocks, each initialized like a
    separate layer. With `deviation` the initial weights are normal with this standard deviation
    times the gain; otherwise they are Xavier uniform. A `centered` layer subtracts the mean from
    each weight row, as Yan et al. 2020 (MABN, section 4.3) do in the layers before a norm that does
    not subtract a mean.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        gains: Sequence[float] = (1.0,),
        bias: bool = True,
        deviation: float | None = None,
    ):
        assert out_features % len(gains) == 0, "blocks must have equal size"
        nn.Module.__init__(self)
        self.in_features = in_features
        self.out_features = out_features
        self.gains = tuple(gains)
        self.deviation = deviation
        self.centered = False
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.register_parameter("bias", nn.Parameter(torch.zeros(out_features)) if bias else None)

    @property
    def rows(self) -> Tensor:
        """The effective weight matrix, with the row means subtracted if the layer is centered."""
        return self.weight - self.weight.mean(1, keepdim=True) if self.centered else self.weight

    def forward(self, input: Tensor) -> Tensor:
        """Return the input times the effective weights, plus the bias."""
        return F.linear(input, self.rows, self.bias)

    @torch.no_grad()
    def settle(self) -> None:
        """Replace the weights with the effective ones, for inference."""
        self.weight.copy_(self.rows)
        self.centered = False

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw each block's values, scaled by its gain, and set the bias to zero."""
        for block, gain in zip(self.weight.chunk(len(self.gains)), self.gains, strict=True):
            if self.deviation is None:
                xavier_(block, generator, gain=gain)
            else:
                normal_(block, generator, deviation=gain * self.deviation)
        if self.bias is not None:
            self.bias.zero_()


class OutputLayer(Linear):
    """The linear layer whose outputs are a model's logits, for tokens or for classes."""


MakeLinear = Callable[..., Linear]
"""Builds a linear layer from its two widths and the role (`fc1`) of each block of its rows."""


class Embedding(nn.Embedding):
    """An embedding of tokens (with a zero row for padding), positions or segments.

    `deviation` is the standard deviation of the initial values. None means `dim^-0.5`, which gives
    rows about unit length. With `unit=True` each row is normalized to unit length on every use
    (FixNorm; Nguyen and Chiang 2018); a tied output layer must use `table`.
    """

    def __init__(
        self,
        num_embeddings: int,
        dim: int,
        *,
        padding_idx: int | None = None,
        unit: bool = False,
        deviation: float | None = None,
    ):
        weight = torch.empty(num_embeddings, dim)  # keeps torch from drawing initial values
        super().__init__(num_embeddings, dim, padding_idx=padding_idx, _weight=weight)
        self.unit = unit
        self.deviation = dim**-0.5 if deviation is None else deviation

    @property
    def table(self) -> Tensor:
        """The embedding matrix as the model uses it, with rows of unit length if `unit` is set."""
        return F.normalize(self.weight, dim=-1) if self.unit else self.weight

    def forward(self, input: Tensor) -> Tensor:
        """Return the embedding of each token."""
        rows = super().forward(input)
        return F.normalize(rows, dim=-1) if self.unit else rows

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw from a normal distribution, or from U(-0.01, 0.01) if `unit` is set."""
        if self.unit:  # as in the paper, because short vectors change direction faster
            values = torch.empty_like(self.weight, device="cpu")
            self.weight.copy_(values.uniform_(-0.01, 0.01, generator=generator))
        else:
            normal_(self.weight, generator, deviation=self.deviation)
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0


class OutputTable(Embedding):
    """The weights of an output layer that is not tied, initialized like an embedding."""


class Sinusoids(nn.Module):
    """Fixed sinusoidal position vectors, used like a learned table."""

    weight: Tensor

    def __init__(self, num_positions: int, dim: int):
        super().__init__()
        self.register_buffer("weight", sinusoids(num_positions, dim), persistent=False)


def sinusoids(num_positions: int, dim: int) -> Float[Tensor, "P D"]:
    """Return sines and cosines at `dim / 2` geometric frequencies (Vaswani et al. 2017, sec. 3.5).

    Sines fill the first half and cosines the second, as in tensor2tensor and fairseq.
    """
    half = dim // 2
    frequency = torch.exp(torch.arange(half) * -(math.log(10_000) / max(half - 1, 1)))
    angle = torch.arange(num_positions)[:, None] * frequency[None, :]
    table = torch.zeros(num_positions, dim)
    table[:, :half], table[:, half : 2 * half] = angle.sin(), angle.cos()
    return table


def position_table(
    kind: Positions, count: int, dim: int, deviation: float | None = None
) -> Sinusoids | Embedding | None:
    """Build the vectors of `count` positions, or return None if the model adds none."""
    if kind == "learned":
        return Embedding(count, dim, deviation=deviation)
    return Sinusoids(count, dim) if kind == "sinusoidal" else None


class InputEmbedding(nn.Module):
    """The input embedding: scale * E[token] + position (0 at padding), then norm and dropout.

    The scale is sqrt(D) in Vaswani et al. 2017 and 1 in BERT. The token embedding is passed in, so
    that several stacks can share it. `positions` is None if no position vectors are added.
    """

    def __init__(
        self,
        tokens: Embedding,
        *,
        scale: float,
        positions: Sinusoids | Embedding | None,
        max_positions: int,
        norm: Norm,
        dropout: float,
    ):
        super().__init__()
        self.tokens = tokens
        self.scale = scale
        self.max_positions = max_positions
        self.positions = positions
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(
        self, ids: Int[Tensor, "B P"], tokens: Tokens, added: Float[Tensor, "B P D"] | None = None
    ) -> Float[Tensor, "B P D"]:
        """Embed the tokens, starting at position `tokens.start`.

        `added` holds extra vectors to add to each token, such as segment embeddings. Raises
        UserError if there are more positions than `max_positions`.
        """
        end = tokens.start + ids.shape[1]
        if end > self.max_positions:
            raise UserError(
                f"a sequence has {end} positions, but the model has only {self.max_positions}; "
                "raise model.max_positions or lower the length limit of the task"
            )
        x = self.tokens(ids) * self.scale
        if self.positions is not None:
            x = x + self.positions.weight[tokens.start : end]
        x = x if added is None else x + added
        x = x if tokens.valid is None else x * tokens.valid[..., None]
        return self.dropout(self.norm(x, tokens))


def soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """Return `cap tanh(x / cap)`, which is between -cap and cap, or `x` itself if cap is None."""
    return x if cap is None else cap * torch.tanh(x / cap)


class FeedForward(nn.Module):
    """fc2(dropout(activation(norm(fc1(x))))) (Vaswani et al. 2017, eq. 2).

    If `gated`, fc1 has twice as many rows, [gate, value] = fc1(x), and the layer returns
    fc2(dropout(activation(norm(gate)) * value)) (Shazeer 2020, eq. 6).

    The inner norm is the identity unless a rule sets it; Yao et al. 2021 put batch norm there so
    that a vision Transformer with batch norm trains. `hidden_norm`, before fc2, is None unless a
    placement or a rule asks for it.
    """

    sublayer: ClassVar[str] = "feed_forward"
    path: str = ""

    def __init__(
        self,
        dim: int,
        ffn_dim: int,
        *,
        activation: Activation,
        gated: bool,
        inner_norm: Norm,
        dropout: float,
        linear: MakeLinear,
        hidden_norm: nn.Module | None = None,
    ):
        super().__init__()
        self.gated = gated
        blocks = ["fc1", "fc1"] if gated else ["fc1"]
        self.fc1 = linear(dim, len(blocks) * ffn_dim, *blocks)
        self.inner_norm = inner_norm
        self.activation = _ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.hidden_norm = hidden_norm
        self.fc2 = linear(ffn_dim, dim, "fc2")

    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens) -> Float[Tensor, "B P D"]:
        """Return the layer's output. Positions are independent unless a norm pools over them."""
        hidden, *value = self.fc1(x).chunk(1 + self.gated, dim=-1)
        hidden = self.activation(self.inner_norm(hidden, tokens))
        hidden = self.dropout(hidden * value[0] if value else hidden)
        return self.fc2(hidden if self.hidden_norm is None else self.hidden_norm(hidden, tokens))

    def folds(self) -> Sequence[Fold]:
        """Return the inner norm, which folds into fc1."""
        return [Fold(self, "inner_norm", preceding=self.fc1)]


def normal_(block: Tensor, generator: torch.Generator, *, deviation: float) -> None:
    """Fill a matrix with normal values of mean 0 and standard deviation `deviation`."""
    values = torch.empty_like(block, device="cpu")
    block.copy_(values.normal_(std=deviation, generator=generator))


def xavier_(block: Tensor, generator: torch.Generator, *, gain: float = 1.0) -> None:
    """Fill a matrix with Xavier uniform values scaled by `gain` (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6 / (block.shape[0] + block.shape[1]))
    block.copy_(torch.empty_like(block, device="cpu").uniform_(-bound, bound, generator=generator))


def orthogonal_(block: Tensor, generator: torch.Generator) -> None:
    """Fill a square matrix with a uniformly random orthogonal matrix (Saxe et al. 2014)."""
    normal = torch.empty(block.shape, dtype=torch.float64).normal_(generator=generator)
    q, r = torch.linalg.qr(normal)
    block.copy_(q * r.diagonal().sign())


@runtime_checkable
class Drawn(Protocol):
    """A layer with its own random initialization."""

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the initial values."""
        ...


def initialize(model: nn.Module, seed: int) -> None:
    """Draw the initial values of every layer of `model` that has an `initialize` method.

    Other modules, such as most norms, keep the parameters they were built with.

    Raises:
        TypeError: a layer of torch has parameters but no `initialize` method, so they were drawn
            from torch's global generator.
    """
    for name, module in model.named_modules():
        if isinstance(module, Drawn):
            digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
            number = int.from_bytes(digest[:8], "big") >> 1
            module.initialize(torch.Generator().manual_seed(number))
        elif type(module).__module__.startswith("torch.nn.modules") and module._parameters:
            raise TypeError(f"{name} is a {type(module).__name__} without an `initialize` method")
