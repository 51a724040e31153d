"""The base class of placements, and `Norms`, which builds the norm for each path in a model.

A placement builds the residual connections of a stack, one per sub-layer. Some placements also
scale the initial weights (`weight_factor`), add norms inside sub-layers (`inner`), or add modules
at both ends of the stack (`opening`, `final`). If there are n residual streams, they are
concatenated: `opening`, or the residual of a layer's first sub-layer, returns `[B, P, n D]`, where
the first D features are the main stream.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.errors import UserError
from normlab.norms.base import NoNorm, Norm
from normlab.norms.tokens import Tokens

NormFactory = Callable[[int], Norm]
"""Builds a norm for a given width D."""
Branch = Callable[[Tensor], Tensor]
"""A sub-layer, such as attention."""

StackName = Literal["encoder", "decoder"]
Sublayer = Literal["self", "cross", "ffn"]
Role = Literal["q", "k", "v", "out", "fc1", "fc2"]
"""A linear layer: an attention projection (query, key, value or output), or the first or second
layer of a feed-forward layer.
"""
Site = Literal["q", "k", "v", "mix", "out", "hidden"]
"""A place for a norm inside a sub-layer: on each head's queries, keys or values, before (`mix`) or
after (`out`) attention's output projection, or on the feed-forward layer's hidden activations.
"""

XAVIER: dict[Role, float] = {
    **dict.fromkeys(("q", "k", "v"), 1 / math.sqrt(2)),  # as in fairseq
    **dict.fromkeys(("out", "fc1", "fc2"), 1.0),
}
"""The Xavier gains of fairseq's Transformer, the default for every placement."""


class Norms:
    """Builds the norms of one model, which its parts request by path.

    A rule pairs a path pattern, such as `encoder.0.*` or `*.ffn`, with a norm factory. The last
    rule that matches a path applies.
    """

    def __init__(self, rules: Iterable[tuple[str, NormFactory]]):
        self.rules = list(rules)
        self.places: dict[str, Norm | None] = {}  # None if the path has no norm
        self._unused = set(range(len(self.rules)))

    def required(self, path: str, dim: int) -> Norm:
        """Build the norm at `path`, of width `dim`. Raise UserError if the path already has one."""
        if self.places.get(path) is not None:
            raise UserError(f"two norms have the path {path}; choose a different path for each")
        norm = self._built(path, dim, "*")
        assert norm is not None, "the first rule matches every path"
        return norm

    def optional(self, path: str, dim: int) -> Norm | None:
        """Build the norm at `path`, or return None if no rule names the last part of the path.

        For example, `*` and `encoder.*` add no norm inside an attention, but `*.q` does. Also
        return None if the path already has a norm: with `placement=sandwich`, the residual has
        built the norm at the end of an attention, `encoder.0.self.out`.
        """
        if self.places.get(path) is not None:
            return None
        return self._built(path, dim, path.rpartition(".")[2])

    def _built(self, path: str, dim: int, last: str) -> Norm | None:
        fitting = [
            number
            for number, (pattern, _) in enumerate(self.rules)
            if last in ("*", pattern.rpartition(".")[2]) and fnmatchcase(path, pattern)
        ]
        self._unused.difference_update(fitting)
        norm = self.rules[fitting[-1]][1](dim) if fitting else None
        if norm is not None:
            norm.path = path
        self.places[path] = norm
        return norm

    def unused(self) -> list[str]:
        """Return the patterns of the rules that matched no path."""
        return [self.rules[number][0] for number in sorted(self._unused)]

    def listed(self) -> str:
        """Return all requested paths as text, with `*` for layer indices (`encoder.*.self`)."""
        return ", ".join(dict.fromkeys(re.sub(r"\.\d+", ".*", path) for path in self.places))


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of a residual connection in a model.

    Attributes:
        stack: `decoder` for a causal stack, even if there is no encoder; otherwise `encoder`.
        layer: index of the layer in its stack.
        layers: number of layers in the stack.
        sublayer: the sub-layer that the connection goes around.
        other_layers: number of layers in the other stack; 0 if there is none.
        heads: number of attention heads.
    """

    stack: StackName
    layer: int
    layers: int
    sublayer: Sublayer
    other_layers: int = 0
    heads: int = 1

    def at(self, sublayer: Sublayer) -> "Place":
        """Return the place of another sub-layer in the same layer."""
        return replace(self, sublayer=sublayer)

    @property
    def connections(self) -> int:
        """The number of residual connections in the stack."""
        return self.layers * (3 if self.stack == "decoder" and self.other_layers else 2)

    @property
    def path(self) -> str:
        """The path that the rules of `Norms` match, such as `encoder.0.self`."""
        return f"{self.stack}.{self.layer}.{self.sublayer}"


class Residual(nn.Module, ABC):
    """A residual connection around a sub-layer, with its norms, dropout and scale.

    `branch_norm` is the name of the attribute that holds the norm whose output only the sub-layer
    reads; None if there is no such norm. `streams` is the number of residual streams that the
    output concatenates.
    """

    branch_norm: ClassVar[str | None] = None
    streams: int = 1
    path: str = ""
    """The path of the connection, such as `encoder.0.ffn`, set by its layer."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = Dropout(dropout)

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "B P D"], tokens: Tokens, branch: Branch
    ) -> Float[Tensor, "B P D"]:
        """Return the residual stream after the sub-layer, given the stream `x` before it.

        `branch` is the sub-layer, and `tokens` are the real tokens.
        """


class NormResidual(Residual):
    """A residual connection with one norm, and a constant `factor` that some placements use."""

    def __init__(self, norm: Norm, dropout: float, factor: float = 1.0):
        super().__init__(dropout)
        self.norm = norm
        self.factor = factor


@dataclass(eq=False, kw_only=True)
class Placement:
    """Where the norms and residual connections of a stack are.

    Attributes:
        drawing: the wiring of a sub-layer in ASCII, which `normlab explain` shows.
        kind: the class of the residuals, if each has exactly one norm. Otherwise, override
            `residual`.
        closing: whether a norm follows the last layer.
        xavier: the Xavier gain of each linear layer, to be multiplied by `weight_factor`.
        always: endings of paths inside sub-layers that get a norm even if no rule names them.
        dropout: the dropout rate of each sub-layer's output.
    """

    drawing: ClassVar[str] = ""
    kind: ClassVar[type[NormResidual]]
    closing: ClassVar[bool] = True
    xavier: ClassVar[Mapping[Role, float]] = XAVIER
    always: ClassVar[tuple[str, ...]] = ()

    dropout: float

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        """Build the residual connection of one sub-layer of width `dim`."""
        return self.kind(norms.required(place.path, dim), self.dropout, self.factor(place))

    def factor(self, place: Place) -> float:
        """Return the constant by which the residual at `place` scales its stream or its branch."""
        return 1.0

    def residuals(self, norms: Norms, dim: int, places: Sequence[Place]) -> Sequence[Residual]:
        """Build the residual connections of one layer, in the order of its sub-layers."""
        return [self.residual(norms, dim, place) for place in places]

    def opening(self, norms: Norms, dim: int, stack: StackName) -> nn.Module:
        """Build the module between the embedding and the first layer. It is called like a norm."""
        return NoNorm(dim)

    def final(self, norms: Norms, dim: int, stack: StackName) -> nn.Module:
        """Build the module after the last layer. Called like a norm, it returns `[B, P, D]`."""
        return norms.required(f"{stack}.final", dim) if self.closing else NoNorm(dim)

    def inner(self, norms: Norms, site: Site, dim: int, place: Place) -> nn.Module | None:
        """Build the module at `site` in a sub-layer, or return None for no module.

        The module is called like a norm. `dim` is the width at `site`. For q, k and v it is the
        width of one head, because all heads share the norm.
        """
        path = f"{place.path}.{site}"
        return (
            norms.required(path, dim) if path.endswith(self.always) else norms.optional(path, dim)
        )

    def weight_factor(self, role: Role, place: Place) -> float:
        """Return the factor by which a linear layer's initial weights are multiplied."""
        return 1.0
