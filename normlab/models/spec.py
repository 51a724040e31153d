"""What a task asks of a model, and what the sizes of a model offer.

A task says what goes in and what comes out: a `Spec`. The model's node of the config is a
`ModelArchitecture`, which builds the model of a spec of its kind and refuses others.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor, nn

from normlab.norms.base import Stream
from normlab.placements.base import Placement


class Spec:
    """What goes in and what comes out. `needs` completes "this task needs ..."."""

    needs: ClassVar[str]


@dataclass(frozen=True)
class Longest:
    """The longest sequence of a task, in tokens: what has it, and what would make it shorter."""

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
    """Tokens, each from those before it (`causal`) or from all others."""

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
    """Pictures of `height` x `width` pixels of `channels` numbers, each of one of `classes`."""

    needs: ClassVar[str] = (
        "a model of pictures, such as model=resnet8, resnet20 or vit, or lstm, gru or rnn"
    )
    height: int
    width: int
    channels: int
    classes: int


@runtime_checkable
class GeneratesText(Protocol):
    """A model of causal text, which can be fed one token at a time."""

    @property
    def room(self) -> int | None:
        """The most tokens that it takes; None for any number."""
        ...

    def __call__(self, ids: Tensor, stream: Stream) -> Tensor:
        """Return the values `[B, T, D]` that `project` makes logits of."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return its parameters."""
        ...

    def project(self, x: Tensor) -> Tensor:
        """Return logits over the vocabulary."""
        ...

    def start_decoding(self, count: int, *, max_length: int) -> Any:
        """Begin `count` sequences."""
        ...

    def decode_step(self, ids: Tensor, state: Any) -> Tensor:
        """Return the logits that follow when each sequence is extended by its token in `ids`."""
        ...


@dataclass(frozen=True, kw_only=True)
class ModelArchitecture(ABC):
    """Sizes and choices of a model.

    `takes` are the kinds of spec that it is for. `sites` are the groups of norms that it has beside
    `norm`, such as `ffn_inner_norm`: factories of these names are among its fields. `stacks` are
    those that may have a norm of their own, `norm@encoder_norm`.
    """

    takes: ClassVar[type[Spec] | tuple[type[Spec], ...]]
    sites: ClassVar[tuple[str, ...]] = ()
    stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    dropout: float

    def build(self, spec: Spec, encoder: Placement, decoder: Placement) -> nn.Module:
        """Build the model of a task, its values not yet drawn.

        Raises ValueError for a spec of another kind, and where it does not fit the sizes.
        """
        if not isinstance(spec, self.takes):
            raise ValueError(f"this task needs {spec.needs}: the model chosen is another kind")
        return self.make(spec, encoder, decoder)

    @abstractmethod
    def make(self, spec: Any, encoder: Placement, decoder: Placement) -> nn.Module:
        """Build the model of a spec of the kind `takes`."""
