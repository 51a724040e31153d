"""The layers that models share, their initialization, and input noise.

Each random parameter is drawn from a generator seeded by the run's seed and the parameter's *name*,
so two models that differ only in their norms start from the same other weights, in whatever order
they are built. As in fairseq: Xavier uniform for projections, N(0, 1/dim) for embeddings, zero
biases.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.models.base import Activation, Fold, Positions, stacks
from normlab.norms.base import Norm, Stream
from normlab.placements.base import Role
from normlab.placements.dropout import Dropout

_NOISE_SEED = 0x4015E
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class Linear(nn.Linear):
    """A linear layer whose rows form equal blocks, each with its own initial gain.

    The queries, keys and values of an attention are one layer with three blocks, each initialized
    like a separate layer. In a `centered` layer the mean of each weight row is subtracted: Yan et
    al. 2020 (MABN, section 4.3) center the layers in front of a norm that subtracts no mean.
    """

    def __init__(self, in_features: int, out_features: int, *, gains: Sequence[float] = (1.0,)):
        assert out_features % len(gains) == 0, "blocks are equal"
        nn.Module.__init__(self)
        self.in_features = in_features
        self.out_features = out_features
        self.gains = tuple(gains)
        self.centered = False
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features))

    @property
    def rows(self) -> Tensor:
        """The weights that the input is multiplied by: centered if the layer is."""
        return self.weight - self.weight.mean(1, keepdim=True) if self.centered else self.weight

    def forward(self, input: Tensor) -> Tensor:
        """Return the product with the rows, plus the bias."""
        return F.linear(input, self.rows, self.bias)

    @torch.no_grad()
    def settle(self) -> None:
        """Make the centering permanent in the weights, for inference."""
        self.weight.copy_(self.rows)
        self.centered = False

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw each block from Xavier's uniform distribution times its gain."""
        for block, gain in zip(self.weight.chunk(len(self.gains)), self.gains, strict=True):
            xavier_(block, generator, gain=gain)
        self.bias.zero_()


class Embedding(nn.Embedding):
    """A token embedding with rows of about unit length and a zero row for padding.

    With `unit` each row is divided by its length wherever it is used (FixNorm; Nguyen and Chiang
    2018); a tied output layer must use `table`.
    """

    def __init__(
        self, num_embeddings: int, dim: int, *, padding_idx: int | None = None, unit: bool = False
    ):
        weight = torch.empty(num_embeddings, dim)  # keeps torch from drawing its own values
        super().__init__(num_embeddings, dim, padding_idx=padding_idx, _weight=weight)
        self.unit = unit

    @property
    def table(self) -> Tensor:
        """The vectors of all tokens as the model uses them, of unit length with `unit`."""
        return F.normalize(self.weight, dim=-1) if self.unit else self.weight

    def forward(self, input: Tensor) -> Tensor:
        """Return the vectors of tokens."""
        rows = super().forward(input)
        return F.normalize(rows, dim=-1) if self.unit else rows

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 1 / dim), or with `unit` from U(-0.01, 0.01)."""
        values = torch.empty_like(self.weight, device="cpu")
        if self.unit:  # as the authors do: a short vector changes direction faster
            values.uniform_(-0.01, 0.01, generator=generator)
        else:
            values.normal_(std=self.embedding_dim**-0.5, generator=generator)
        self.weight.copy_(values)
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0


class Sinusoids(nn.Module):
    """Fixed sinusoidal position vectors, used like a learned table."""

    weight: Tensor

    def __init__(self, num_positions: int, dim: int):
        super().__init__()
        self.register_buffer("weight", sinusoids(num_positions, dim), persistent=False)


def sinusoids(num_positions: int, dim: int) -> Float[Tensor, "P D"]:
    """Return sine and cosine waves of `dim / 2` geometric frequencies (Vaswani 2017, sec. 3.5).

    Sines fill the first half and cosines the second, as in tensor2tensor and fairseq.
    """
    half = dim // 2
    frequency = torch.exp(torch.arange(half) * -(math.log(10_000) / max(half - 1, 1)))
    angle = torch.arange(num_positions)[:, None] * frequency[None, :]
    table = torch.zeros(num_positions, dim)
    table[:, :half], table[:, half : 2 * half] = angle.sin(), angle.cos()
    return table


POSITIONS: dict[Positions, Callable[[int, int], Sinusoids | Embedding]] = {
    "sinusoidal": Sinusoids,
    "learned": Embedding,
}


class StreamEmbedding(nn.Module):
    """scale E[token] + position, zero at padding, then the embedding norm and dropout.

    The scale is sqrt(D) in Vaswani et al. 2017 and 1 in BERT. The token embedding is an argument,
    so that several streams can share it.
    """

    def __init__(
        self,
        tokens: Embedding,
        *,
        scale: float,
        positions: Positions,
        max_positions: int,
        norm: Norm,
        dropout: float,
    ):
        super().__init__()
        self.tokens = tokens
        self.scale = scale
        self.max_positions = max_positions
        self.positions = POSITIONS[positions](max_positions, tokens.embedding_dim)
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(
        self, ids: Int[Tensor, "B P"], stream: Stream, added: Float[Tensor, "B P D"] | None = None
    ) -> Float[Tensor, "B P D"]:
        """Embed the tokens; the first column is at position `stream.start`.

        `added` are extra vectors to add per token, such as segment embeddings.
        """
        end = stream.start + ids.shape[1]
        if end > self.max_positions:
            raise ValueError(
                f"a sequence reaches position {end}, the model has {self.max_positions}: "
                f"raise model.max_positions or lower the length limit of the task"
            )
        x = self.tokens(ids) * self.scale + self.positions.weight[stream.start : end]
        x = (x if added is None else x + added) * stream.real(ids)[..., None]
        return self.dropout(self.norm(x, stream))


class FeedForward(nn.Module):
    """fc2(dropout(activation(norm(fc1(x))))) (Vaswani et al. 2017, eq. 2).

    The inner norm is the identity unless a rule names it; Yao et al. 2021 add batch norm there to
    make a batch-normalized vision Transformer train. `hidden_norm`, before fc2, exists only if a
    placement or a rule asks for it.
    """

    sublayer: ClassVar[str] = "feed_forward"

    def __init__(
        self,
        dim: int,
        ffn_dim: int,
        *,
        activation: Activation,
        inner_norm: Norm,
        dropout: float,
        gain: Callable[[Role], float],
        hidden_norm: nn.Module | None = None,
    ):
        super().__init__()
        self.fc1 = Linear(dim, ffn_dim, gains=(gain("fc1"),))
        self.inner_norm = inner_norm
        self.activation = _ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.hidden_norm = hidden_norm
        self.fc2 = Linear(ffn_dim, dim, gains=(gain("fc2"),))

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Transform each position separately, except where a norm pools over positions."""
        hidden = self.inner_norm(self.fc1(x), stream)
        hidden = self.dropout(self.activation(hidden))
        return self.fc2(hidden if self.hidden_norm is None else self.hidden_norm(hidden, stream))

    def folds(self) -> Sequence[Fold]:
        """Return the inner norm, which folds into fc1."""
        return [Fold(self, "inner_norm", behind=self.fc1)]


def xavier_(block: Tensor, generator: torch.Generator, *, gain: float = 1.0) -> None:
    """Draw a matrix from Xavier's uniform distribution times a gain (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6 / (block.shape[0] + block.shape[1]))
    block.copy_(torch.empty_like(block, device="cpu").uniform_(-bound, bound, generator=generator))


def orthogonal_(block: Tensor, generator: torch.Generator) -> None:
    """Draw a square orthogonal matrix uniformly (Saxe et al. 2014)."""
    normal = torch.empty(block.shape, dtype=torch.float64).normal_(generator=generator)
    q, r = torch.linalg.qr(normal)
    block.copy_(q * r.diagonal().sign())


@runtime_checkable
class Drawn(Protocol):
    """A layer whose initial values are random."""

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the initial values."""
        ...


def initialize(model: nn.Module, seed: int) -> None:
    """Draw the initial values of every layer of `model` that has an `initialize` method.

    Norms and placements keep the parameters they were built with.

    Raises:
        TypeError: a plain torch layer has parameters, which torch drew from dropout's generator.
    """
    for name, module in model.named_modules():
        if isinstance(module, Drawn):
            digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
            number = int.from_bytes(digest[:8], "big") >> 1
            module.initialize(torch.Generator().manual_seed(number))
        elif type(module).__module__.startswith("torch.nn.modules") and module._parameters:
            raise TypeError(f"{name} is a {type(module).__name__} that nothing gives its values")


@contextmanager
def noisy(model: nn.Module, deviation: float) -> Iterator[None]:
    """Add Gaussian noise to a model's input inside the context.

    In a text model noise is added to the token vectors of the first stack (the source in
    translation), except at padding; in any other model to its first argument, such as pixels whose
    channels have variance 1.

    The noise sequence restarts with each context and follows the order of batches, so two models
    fed the same batches get the same noise whatever their norms. Another batch size or number of
    processes gives different noise.

    Args:
        model: the model whose input gets noise.
        deviation: standard deviation of the noise relative to the input's: for tokens, to the
            standard deviation over the embedding table without padding.
    """
    draw = torch.Generator().manual_seed(_NOISE_SEED)
    modules = list(model.modules())
    # An embedding without padding is not of tokens, such as a class token.
    tables = [m for m in modules if isinstance(m, Embedding) and m.padding_idx is not None]
    entry, size = model, deviation
    if tables:
        weight = tables[0].table.detach()
        real = torch.arange(len(weight), device=weight.device) != tables[0].padding_idx
        scale = next((m.scale for m in modules if isinstance(m, StreamEmbedding)), 1.0)
        entry, size = next(iter(stacks(model).values())).entry, deviation * scale
        size *= float(weight[real].float().std())

    def add(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *others = given
        noise = torch.randn(x.shape, generator=draw).mul_(size).to(x)
        return (x + (noise * others[0].real(x)[..., None] if tables else noise), *others)

    hook = entry.register_forward_pre_hook(add)
    try:
        yield
    finally:
        hook.remove()
