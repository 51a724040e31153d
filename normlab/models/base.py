"""Interfaces between tasks, models and the code that inspects models.

A task states its input and output as a `Spec`. The model node of the config is a
`ModelArchitecture`, which builds the model for a spec of the right kind and rejects others. Each
stack of a model describes itself as an `Anatomy`, so that probes, inspection and compilation work
with any model.
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
    """The longest sequence of a task in tokens, and two phrases for the error if it is too long."""

    tokens: int
    of: str
    cure: str


@dataclass(frozen=True)
class TextToText(Spec):
    """Maps tokens of one vocabulary to tokens of another, padded with `pad_id`."""

    needs: ClassVar[str] = (
        "a model with an encoder and a decoder, such as model=tiny, mini, small, base or iwslt"
    )
    source_vocab: int
    target_vocab: int
    pad_id: int
    longest: Longest


@dataclass(frozen=True)
class Text(Spec):
    """Tokens, each predicted from earlier tokens (`causal`) or from all other tokens."""

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
    """Images of `height` x `width` pixels with `channels` values each, for classification."""

    needs: ClassVar[str] = (
        "a model of images, such as model=resnet8, resnet20 or vit, or lstm, gru or rnn"
    )
    height: int
    width: int
    channels: int
    classes: int


@dataclass(frozen=True, kw_only=True)
class ModelArchitecture(ABC):
    """Sizes and options of a model.

    `takes` are the kinds of spec that it accepts. `own_norms` is set for a model without a
    placement and says where its norms are.
    """

    takes: ClassVar[type[Spec] | tuple[type[Spec], ...]]
    own_norms: ClassVar[str | None] = None
    dropout: float

    def build(self, spec: Spec, placement: Placement, norms: Norms) -> nn.Module:
        """Build the model for a task, with uninitialized parameters.

        Raises:
            ValueError: the spec has the wrong kind or size, or this model takes no placement.
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
        """Build the model for a spec of the kind `takes`, with norms from `norms` by path."""


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
        """Raise ValueError if the task's longest sequence has more tokens than `max_positions`."""
        if longest.tokens > self.max_positions:
            raise ValueError(
                f"{longest.of} {longest.tokens} tokens, and model.max_positions="
                f"{self.max_positions}: {longest.cure}"
            )


class Anatomy(NamedTuple):
    """The modules at both ends of a stack, and its repeated blocks.

    Each module is called with values and their stream, or with images only.

    Attributes:
        entry: its input depends only on the stack's own tokens or pixels; no norm comes before it.
        first: its input is what enters the blocks.
        last: its output is the output of the stack.
        both_ways: whether a position may see later positions.
        room: the largest number of positions; None for any number.
        blocks: compiled one by one; empty if compiling would unroll a loop over positions.
    """

    entry: nn.Module
    first: nn.Module
    last: nn.Module
    both_ways: bool
    room: int | None
    blocks: Iterable[nn.Module]


class Stack(nn.Module, ABC):
    """A model, or a part of one, that describes its anatomy."""

    @abstractmethod
    def anatomy(self) -> Anatomy:
        """Return the ends and the blocks of the stack."""


def stacks(model: nn.Module) -> dict[str, Anatomy]:
    """Return the stacks of a model by name (`encoder`, `decoder`); `network` is the model itself.

    Empty for a model without stacks.
    """
    return {
        name or "network": module.anatomy()
        for name, module in model.named_modules()
        if isinstance(module, Stack)
    }


class Fold(NamedTuple):
    """A norm that can be folded: the attribute `name` of `owner`. A module's `folds()` lists them.

    Either only the linear layers `into` read its output, or its input is the output of the linear
    layer or convolution `behind`.
    """

    owner: nn.Module
    name: str
    into: Sequence[nn.Linear] = ()
    behind: nn.Linear | nn.Conv2d | None = None


def sublayer(module: nn.Module) -> str | None:
    """Return the kind of a sub-layer that probes measure, in one word; None for other modules.

    Its class declares the kind as `sublayer`. It is called like the modules of an `Anatomy`, and
    returns values, or a tuple of values and states. Its parameters count as its kind, except the
    parameters of norms and embeddings.
    """
    return getattr(module, "sublayer", None)


def incremental(module: nn.Module) -> bool:
    """Return whether all norms in a module can process one token at a time in evaluation."""
    return all(norm.incremental for norm in module.modules() if isinstance(norm, Norm))


@runtime_checkable
class Decoding(Protocol):
    """The state of decoding, which advances by one token per sequence."""

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Feed the next token of each sequence; return the values at its position."""
        ...


class GeneratesText(nn.Module, ABC):
    """A causal text model that can decode one token at a time."""

    room: int | None
    """The most tokens that it takes; None for any number."""

    @abstractmethod
    def forward(self, ids: Int[Tensor, "B P"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return the values that `project` maps to the logits of the next tokens."""

    @abstractmethod
    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return logits over the vocabulary."""

    @abstractmethod
    def start_decoding(self, count: int, *, max_length: int) -> Decoding:
        """Start decoding `count` sequences, in the fastest way that the norms allow."""

    def decode_step(self, ids: Int[Tensor, "N"], state: Decoding) -> Float[Tensor, "N V"]:
        """Append its token in `ids` to each sequence; return the logits of the next token."""
        return self.project(state.advance(ids))
