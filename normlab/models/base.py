"""Interfaces between tasks, models and the code that inspects models.

A task describes its input and output as a `Spec`. The config's model node is a `ModelArchitecture`,
which builds a model for the kinds of spec that it supports and rejects other kinds. Each stack of a
model describes its structure as an `Anatomy`, so that probes, inspection and compilation work with
any model.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.errors import UserError
from normlab.models.rotary import Rope
from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Placement
from normlab.placements.pre import Pre

Activation = Literal["relu", "gelu", "silu", "gelu_tanh"]
Positions = Literal["sinusoidal", "learned", "rope", "none"]
QkNorm = Literal["none", "l2", "cosine", "ln", "rms", "rms_heads", "rms_full", "qkv"]
AttentionGate = Literal["none", "headwise", "elementwise"]
Init = Literal["xavier", "normal"]


class Spec:
    """The input and output of a task. `needs` completes the error "this task needs ..."."""

    needs: ClassVar[str]


@dataclass(frozen=True)
class TextToText(Spec):
    """A token sequence as input and one as output, each with its own vocabulary.

    `longest` is the length of the task's longest sequence in tokens.
    """

    needs: ClassVar[str] = (
        "a model with an encoder and a decoder, such as model=tiny, mini, small, base or iwslt"
    )
    source_vocab: int
    target_vocab: int
    pad_id: int
    longest: int


@dataclass(frozen=True)
class Text(Spec):
    """A token sequence. Tokens are predicted from earlier ones (`causal`) or from all others."""

    needs: ClassVar[str] = (
        "a single-stack text model, such as model=bert_tiny, bert_mini, bert_small, bert_base, "
        "gpt2 or llama, or with task=lm also model=lstm, gru or rnn"
    )
    vocab: int
    pad_id: int
    longest: int
    causal: bool


@dataclass(frozen=True)
class Image(Spec):
    """Images of `height` x `width` pixels with `channels` values each, for classification."""

    needs: ClassVar[str] = (
        "a model for images, such as model=resnet8, resnet20, vit, lstm, gru or rnn"
    )
    height: int
    width: int
    channels: int
    classes: int


@dataclass(frozen=True)
class Features(Spec):
    """Rows of `count` measurements, for classification."""

    needs: ClassVar[str] = "a model for rows of features, such as model=mlp"
    count: int
    classes: int


@dataclass(frozen=True, kw_only=True)
class ModelArchitecture(ABC):
    """Architecture settings of a model.

    `takes` lists the kinds of spec that the model accepts. If a model ignores the placement,
    `own_norms` is a clause that says where its norms are, for error messages.
    """

    takes: ClassVar[type[Spec] | tuple[type[Spec], ...]]
    own_norms: ClassVar[str | None] = None
    dropout: float

    def build(self, spec: Spec, placement: Placement, norms: Norms) -> nn.Module:
        """Build the model for a task, with uninitialized parameters.

        Raises:
            UserError: the spec has the wrong kind or size, or the placement would have no effect.
        """
        if not isinstance(spec, self.takes):
            raise UserError(f"this task needs {spec.needs}; the chosen model is not one")
        if self.own_norms is not None and type(placement) is not Pre:
            raise UserError(f"{self.own_norms} and ignores the placement; omit placement=")
        return self.make(spec, placement, norms)

    @abstractmethod
    def make(self, spec: Any, placement: Placement, norms: Norms) -> nn.Module:
        """Build the model for a spec accepted by `takes`; `norms` builds a norm for each path."""


@dataclass(frozen=True, kw_only=True)
class StackArchitecture(ModelArchitecture):
    """Architecture settings shared by all Transformer stacks.

    Attributes:
        ffn_dim: width of the feed-forward layers. None means four times `dim` or, in gated layers,
            8/3 of `dim` rounded up to a multiple of 8, which gives about as many parameters.
        gated: whether feed-forward layers multiply the activation by a second product (Shazeer
            2020).
        bias: whether the linear layers of attention and feed-forward layers have a bias.
        init: initial weights of all linear layers and embeddings: `xavier`, or `normal` with
            standard deviation 0.02 (learned positions 0.01), times the factor that the placement
            gives to some layers.
        score_cap: the cap c of attention scores, which become `c tanh(score / c)` (Gemma 2); None
            for no cap.
        logit_cap: the same for the output layer's logits.
        attention_gate: whether each head's output, or each value of it, is multiplied by a sigmoid
            of the sub-layer's input (see `attention`).
        qk_norm: the norm on each head's queries and keys (see `attention`). Its eps is `qk_eps`.
        qk_length: the sequence length that sets the initial scale of `qk_norm=l2`.
        fixnorm: whether token embeddings are normalized to unit length at input and output, and
            multiplied by sqrt(dim) at the input (Nguyen and Salazar 2019, section 2.2).
    """

    dim: int
    ffn_dim: int | None
    num_heads: int
    activation: Activation
    attention_dropout: float
    activation_dropout: float
    positions: Positions
    max_positions: int
    qk_norm: QkNorm = "none"
    qk_length: int = 64
    fixnorm: bool = False
    rope: Rope = field(default_factory=Rope)
    gated: bool = False
    bias: bool = True
    init: Init = "xavier"
    qk_eps: float = 1e-5
    score_cap: float | None = None
    logit_cap: float | None = None
    attention_gate: AttentionGate = "none"

    @property
    def hidden(self) -> int:
        """The width of the feed-forward layers."""
        default = -(-self.dim // 3) * 8 if self.gated else 4 * self.dim
        return default if self.ffn_dim is None else self.ffn_dim

    def check_positions(self, longest: int) -> None:
        """Raise UserError if the task's longest sequence, in tokens, exceeds `max_positions`."""
        if longest > self.max_positions:
            raise UserError(
                f"the longest text has {longest} tokens, but "
                f"model.max_positions={self.max_positions}; raise it, or lower task.max_length "
                "(or eval_max_length)"
            )


class Anatomy(NamedTuple):
    """The first and last modules of a stack, and its repeated blocks.

    Each module is called with values and their tokens, or only with images.

    Attributes:
        entry: the module that reads the embedded tokens or the pixels; no norm comes before it.
        first: the module whose input is the input of the blocks.
        last: the module whose output is the output of the stack.
        both_ways: whether a position sees later positions.
        max_positions: the maximum number of positions; None for no limit.
        blocks: modules that are compiled one by one; empty if that would unroll a loop over
            positions.
    """

    entry: nn.Module
    first: nn.Module
    last: nn.Module
    both_ways: bool
    max_positions: int | None
    blocks: Iterable[nn.Module]


class Stack(nn.Module, ABC):
    """A model, or a part of a model, that describes its structure as an `Anatomy`."""

    @abstractmethod
    def anatomy(self) -> Anatomy:
        """Return the stack's first and last modules and its blocks."""


def stacks(model: nn.Module) -> dict[str, Anatomy]:
    """Return a model's stacks by name; a model that is itself a stack is called `network`.

    The dict is empty for a model without stacks.
    """
    return {
        name or "network": module.anatomy()
        for name, module in model.named_modules()
        if isinstance(module, Stack)
    }


class Fold(NamedTuple):
    """A foldable norm: the attribute `name` of the module `owner`.

    A module lists its foldable norms in `folds()`. Either only the linear layers `into` read the
    norm's output, or the norm reads the output of the linear layer or convolution `preceding`.
    """

    owner: nn.Module
    name: str
    into: Sequence[nn.Linear] = ()
    preceding: nn.Linear | nn.Conv2d | None = None


def sublayer(module: nn.Module) -> str | None:
    """Return a module's kind of sub-layer, such as "attention", or None if it is not a sub-layer.

    Its class declares the kind as `sublayer`, and probes measure each sub-layer. A sub-layer is
    called like the modules of an `Anatomy` and returns values, or a tuple of values and states. Its
    parameters are counted under this kind, except parameters of norms and embeddings.
    """
    return getattr(module, "sublayer", None)


def incremental(module: nn.Module) -> bool:
    """Return whether every norm in a module can process one token at a time in eval mode."""
    return all(norm.incremental for norm in module.modules() if isinstance(norm, Norm))


@runtime_checkable
class Decoding(Protocol):
    """The decoding state of a batch, advanced by one token per sequence at a time."""

    def advance(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N D"]:
        """Feed one token per sequence and return the model's output at its position."""
        ...


class GeneratesText(nn.Module, ABC):
    """A causal text model that can decode one token at a time."""

    max_positions: int | None
    """The maximum number of tokens in the context, or None for no limit."""

    @abstractmethod
    def forward(self, ids: Int[Tensor, "B P"], tokens: Tokens) -> Float[Tensor, "B P D"]:
        """Return the hidden states that `project` maps to next-token logits."""

    @abstractmethod
    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return logits over the vocabulary."""

    @abstractmethod
    def start_decoding(self, count: int, *, max_length: int) -> Decoding:
        """Start decoding `count` sequences. Each step re-runs the prefix if a norm requires it."""

    def decode_step(self, ids: Int[Tensor, "N"], state: Decoding) -> Float[Tensor, "N V"]:
        """Append one token to each sequence and return the logits of the next token."""
        return self.project(state.advance(ids))
