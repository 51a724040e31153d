"""What a task asks of a model, the sizes that a model is built from, and what it says of itself.

A task states its input and output as a `Spec`. The model's node of the config is a
`ModelArchitecture`, which builds the model of a spec of its kind and refuses others. A stack of the
model describes itself as an `Anatomy`, so that probes, inspection and compilation need not know
which model they look at.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.norms.base import Norm, Stream
from normlab.placements.base import Norms, Placement
from normlab.placements.pre import Pre

Activation = Literal["relu", "gelu"]
Positions = Literal["sinusoidal", "learned"]
QkNorm = Literal["none", "l2", "cosine", "ln", "rms", "rms_heads", "qkv"]


class Spec:
    """The input and output of a task. `needs` completes "this task needs ..."."""

    needs: ClassVar[str]


class Longest(NamedTuple):
    """The longest sequence of a task in tokens, what it is called, and how to shorten it."""

    tokens: int
    of: str
    cure: str


@dataclass(frozen=True)
class TextToText(Spec):
    """From tokens of one vocabulary to tokens of another, padded with `pad_id`."""

    needs: ClassVar[str] = (
        "a model with an encoder and a decoder, such as model=tiny, mini, small, base or iwslt"
    )
    source_vocab: int
    target_vocab: int
    pad_id: int
    longest: Longest


@dataclass(frozen=True)
class Text(Spec):
    """Tokens, each predicted from the earlier ones (`causal`) or from all others."""

    needs: ClassVar[str] = (
        "a model of one stream, such as model=bert_tiny, bert_mini, bert_small or bert_base, or of "
        "task=lm model=lstm, gru or rnn"
    )
    vocab: int
    pad_id: int
    longest: Longest
    causal: bool


@dataclass(frozen=True)
class Image(Spec):
    """Images of `height` x `width` pixels with `channels` values each, one of `classes`."""

    needs: ClassVar[str] = (
        "a model of images, such as model=resnet8, resnet20 or vit, or lstm, gru or rnn"
    )
    height: int
    width: int
    channels: int
    classes: int


@dataclass(frozen=True, kw_only=True)
class ModelArchitecture(ABC):
    """Sizes and choices of a model.

    `takes` are the kinds of spec that it is for. `own_norms` says where the norms of a model are
    that has no placement.
    """

    takes: ClassVar[type[Spec] | tuple[type[Spec], ...]]
    own_norms: ClassVar[str | None] = None
    dropout: float

    def build(self, spec: Spec, placement: Placement, norms: Norms) -> nn.Module:
        """Build the model of a task, whose parameters have no values yet.

        Raises:
            ValueError: the spec is of another kind, or does not fit the sizes.
        """
        if not isinstance(spec, self.takes):
            raise ValueError(f"this task needs {spec.needs}: the model chosen is another kind")
        if self.own_norms is not None and type(placement) is not Pre:
            raise ValueError(
                f"placement: {self.own_norms}, whatever the placement is; leave it out"
            )
        return self.make(spec, placement, norms)

    @abstractmethod
    def make(self, spec: Any, placement: Placement, norms: Norms) -> nn.Module:
        """Build the model of a spec of the kind `takes`, with norms asked for by their paths."""


@dataclass(frozen=True, kw_only=True)
class StackArchitecture(ModelArchitecture):
    """Sizes of a Transformer's stacks.

    Attributes:
        qk_norm: the norm of the heads' queries and keys (see `attention`); `qk_length` is the
            sequence length from which `l2` takes its initial scale.
        fixnorm: token embeddings have unit length wherever they are used, input and output, and the
            input is multiplied by sqrt(dim) (Nguyen and Salazar 2019, section 2.2).
    """

    dim: int
    ffn_dim: int
    num_heads: int
    activation: Activation
    attention_dropout: float
    activation_dropout: float
    positions: Positions
    max_positions: int
    qk_norm: QkNorm = "none"
    qk_length: int = 64
    fixnorm: bool = False

    def check_positions(self, longest: Longest) -> None:
        """Raise ValueError where a sequence of the task has more tokens than `max_positions`."""
        if longest.tokens > self.max_positions:
            raise ValueError(
                f"{longest.of} {longest.tokens} tokens, and model.max_positions="
                f"{self.max_positions}: {longest.cure}"
            )


class Anatomy(NamedTuple):
    """The ends of a stack, and the blocks that it repeats.

    Each module is called with values and their stream, or with images alone.

    Attributes:
        entry: its input depends on the stack's own tokens or pixels alone; no norm comes before.
        first: its input is the first value that the blocks work on.
        last: its output is the last one.
        both_ways: whether a position may see later positions.
        room: the largest number of positions; None for any number.
        blocks: what is compiled, each by itself; empty where a loop over positions would unroll.
    """

    entry: nn.Module
    first: nn.Module
    last: nn.Module
    both_ways: bool
    room: int | None
    blocks: Iterable[nn.Module]


class Stack(nn.Module, ABC):
    """A part of a model, or all of it, that describes its anatomy."""

    @abstractmethod
    def anatomy(self) -> Anatomy:
        """Return the ends and the blocks of the stack."""


def stacks(model: nn.Module) -> dict[str, Anatomy]:
    """Return the stacks of a model by name (`encoder`, `decoder`); `network` is the model itself.

    Empty for a model that declares none.
    """
    return {
        name or "network": module.anatomy()
        for name, module in model.named_modules()
        if isinstance(module, Stack)
    }


class Fold(NamedTuple):
    """A norm that can be folded: the attribute `name` of `owner`.

    Either the products `into` are the only readers of its output, or it reads the output of the
    product or convolution `behind`.
    """

    owner: nn.Module
    name: str
    into: Sequence[nn.Linear] = ()
    behind: nn.Linear | nn.Conv2d | None = None


@runtime_checkable
class Folding(Protocol):
    """A module that knows norms which can be folded."""

    def folds(self) -> Sequence[Fold]:
        """Return the norms and the products next to them."""
        ...


@runtime_checkable
class SubLayer(Protocol):
    """A part of a layer that probes look at: `sublayer` is what it does, in one word.

    It is called as the modules of an `Anatomy` are, and returns values, or a tuple of values and
    states. Its parameters are of its kind, except those of norms and embeddings.
    """

    sublayer: str


def sublayer(module: nn.Module) -> str | None:
    """Return what a sub-layer does; None for a module that is no sub-layer."""
    return module.sublayer if isinstance(module, SubLayer) else None


def incremental(module: nn.Module) -> bool:
    """Tell whether all norms inside a module take one token at a time in evaluation."""
    return all(norm.incremental for norm in module.modules() if isinstance(norm, Norm))


@runtime_checkable
class Decoding(Protocol):
    """The state of decoding, which is fed one token per sequence at a time."""

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Feed the next token of each sequence; return the values at its position."""
        ...


class GeneratesText(nn.Module, ABC):
    """A model of causal text, which can be fed one token at a time."""

    room: int | None
    """The most tokens that it takes; None for any number."""

    @abstractmethod
    def forward(self, ids: Int[Tensor, "B P"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return the values from which `project` makes the logits of the next tokens."""

    @abstractmethod
    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return logits over the vocabulary."""

    @abstractmethod
    def start_decoding(self, count: int, *, max_length: int) -> Decoding:
        """Begin `count` sequences, in the fastest way that the norms allow."""

    def decode_step(self, ids: Int[Tensor, "N"], state: Decoding) -> Float[Tensor, "N V"]:
        """Return the logits that follow when each sequence is extended by its token in `ids`."""
        return self.project(state.advance(ids))
