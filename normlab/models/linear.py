"""The linear layer of all models, and how parameters get their first values.

A random parameter is drawn from a generator seeded by the run's seed and the parameter's *name*, so
two models of one seed that differ in their norms start from identical other weights, whatever was
built before or between. Rules as in fairseq: Xavier uniform for projections, N(0, 1/dim) for
embeddings, zero biases.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    """A linear layer whose rows are equal blocks, each with an initial gain of its own.

    Queries, keys and values of one attention are one product of three blocks; each block starts as
    a layer by itself would. Each row of a `centered` layer counts less its mean (see `centering`).
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
        """The weights that it multiplies by."""
        return self.weight - self.weight.mean(1, keepdim=True) if self.centered else self.weight

    def forward(self, input: Tensor) -> Tensor:
        """Return the product with the rows, and the bias added."""
        return F.linear(input, self.rows, self.bias)

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw each block from Xavier's uniform distribution times its gain (Glorot 2010)."""
        for block, gain in zip(self.weight.chunk(len(self.gains)), self.gains, strict=True):
            xavier_(block, generator, gain=gain)
        self.bias.zero_()


def xavier_(block: Tensor, generator: torch.Generator, *, gain: float = 1.0) -> None:
    """Draw a matrix from Xavier's uniform distribution times a gain (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6 / (block.shape[0] + block.shape[1]))
    block.copy_(torch.empty_like(block, device="cpu").uniform_(-bound, bound, generator=generator))


def orthogonal_(block: Tensor, generator: torch.Generator) -> None:
    """Draw a square orthogonal matrix, all of them equally likely (Saxe et al. 2014)."""
    normal = torch.empty(block.shape, dtype=torch.float64).normal_(generator=generator)
    q, r = torch.linalg.qr(normal)
    block.copy_(q * r.diagonal().sign())


class Embedding(nn.Embedding):
    """A token embedding with rows of expected unit length and a zero row for padding.

    With `unit` each row is divided by its length wherever it is used (FixNorm; Nguyen and Chiang
    2018), and a product with the embedding takes its `table`.
    """

    def __init__(
        self, num_embeddings: int, dim: int, *, padding_idx: int | None = None, unit: bool = False
    ):
        weight = torch.empty(num_embeddings, dim)  # keeps torch from drawing values of its own
        super().__init__(num_embeddings, dim, padding_idx=padding_idx, _weight=weight)
        self.unit = unit

    @property
    def table(self) -> Tensor:
        """The vectors of all tokens, as they are used."""
        return F.normalize(self.weight, dim=-1) if self.unit else self.weight

    def forward(self, input: Tensor) -> Tensor:
        """Return the vectors of tokens."""
        rows = super().forward(input)
        return F.normalize(rows, dim=-1) if self.unit else rows

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 1 / dim); rows of unit length, from U(-0.01, 0.01)."""
        values = torch.empty_like(self.weight, device="cpu")
        if self.unit:  # as the authors do: what is small at first turns faster
            values.uniform_(-0.01, 0.01, generator=generator)
        else:
            values.normal_(std=self.embedding_dim**-0.5, generator=generator)
        self.weight.copy_(values)
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0


@runtime_checkable
class Drawn(Protocol):
    """A layer whose first values are drawn at random."""

    def initialize(self, generator: torch.Generator) -> None:
        """Draw them."""
        ...


def parameter_generator(seed: int, name: str) -> torch.Generator:
    """Return the generator that draws the parameter called `name` in runs of `seed`."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def initialize(model: nn.Module, seed: int) -> None:
    """Give every layer of `model` that is drawn at random the first values of `seed`.

    Those are the modules with `initialize`; norms and placements keep the values they are built
    with. Raises TypeError for a layer of torch's own with parameters: it would have drawn them from
    the stream of dropout, unseen.
    """
    for name, module in model.named_modules():
        if isinstance(module, Drawn):
            module.initialize(parameter_generator(seed, name))
        elif type(module).__module__.startswith("torch.nn.modules") and module._parameters:
            raise TypeError(f"{name} is a {type(module).__name__} that nothing gives its values")


def parameter_hashes(model: nn.Module) -> dict[str, str]:
    """Return a short hash of each parameter's bytes, by name: equal hashes, equal values."""
    return {name: _hash(parameter) for name, parameter in model.named_parameters()}


def _hash(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]
