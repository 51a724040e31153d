"""Records forward passes of normlab's models, and measures how much values differ in them."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.findings.relative_change import percent, ratio, rms
from normlab.findings.summary import Verdict
from normlab.inspection.model.built_model import BuiltModel
from normlab.models.attention import AttentionCore, visible_keys
from normlab.models.base import stacks
from normlab.norms.running import normalized_by
from normlab.placements.base import Residual
from normlab.probes.sites import modules_by_site, real_values
from normlab.tasks.base import Batch

Mode = Literal["training", "eval"]
"""Which statistics norms use: each batch's own (`training`), or those used in evaluation."""
MODES: tuple[Mode, Mode] = ("training", "eval")
ROUNDING = 1e-5
"""The largest relative change that float32 rounding causes in a model with tens of layers."""


class MaskedValues(NamedTuple):
    """The activations of a batch, and the mask of its real positions."""

    all: Float[Tensor, "B P D"]
    valid: Bool[Tensor, "B P"]

    @property
    def real(self) -> Float[Tensor, "N D"]:
        """The values at real positions."""
        return self.all[self.valid]


class AttentionInputs(NamedTuple):
    """The inputs of an attention, and the masks of visible keys and of real queries."""

    query: Float[Tensor, "B H P K"]
    key: Float[Tensor, "B H S K"]
    visible: Bool[Tensor, "..."] | None
    real: Bool[Tensor, "B P"]


class RecordedCall(NamedTuple):
    """The arguments and the output of one call of a module."""

    args: tuple[Any, ...]
    output: Any


class RecordedPass:
    """The calls of a model's modules in one forward pass, in order.

    `calls` has the calls, keyed by the kind and then the name of the module. If `recording` makes
    the inputs of stacks leaves, `entered` has the arguments of each stack's entry module.
    """

    def __init__(self) -> None:
        self.calls: dict[str, dict[str, list[RecordedCall]]] = defaultdict(dict)
        self.entered: dict[str, tuple[Any, ...]] = {}

    def outputs(self, kind: str) -> dict[str, MaskedValues]:
        """Return the outputs of all modules of a kind, by path.

        `kind` is `stack` (such as `encoder`) or `layer` (such as `encoder.0`).
        """
        last_calls = {name: calls[-1] for name, calls in self.calls[kind].items()}
        return {
            name: MaskedValues(*real_values(call.output, call.args))
            for name, call in last_calls.items()
        }

    @property
    def attentions(self) -> dict[str, AttentionInputs]:
        """The inputs of each attention, keyed by its name.

        The mask of real queries comes from the residual connection around the attention.
        """
        inputs: dict[str, AttentionInputs] = {}
        for name, calls in self.calls["attention"].items():
            query, key, _, *mask = calls[-1].args
            x, tokens, *_ = self.calls["residual"][name][-1].args
            inputs[name] = AttentionInputs(query, key, visible_keys(query, *mask), tokens.real(x))
        return inputs


Enter = Callable[[str, Tensor], Tensor]


def in_mode(model: nn.Module, mode: Mode) -> AbstractContextManager[None]:
    """Return a context in which norms use batch statistics, or what they use in evaluation."""
    return normalized_by(model, "batch") if mode == "training" else nullcontext()


def record(
    built: BuiltModel, batch: Batch, mode: Mode = "eval", *, enter: Enter | None = None
) -> RecordedPass:
    """Run a batch in the given mode and return the recorded pass."""
    with in_mode(built.model, mode), recording(built.model, enter=enter) as forward:
        built.losses(batch)
    return forward


@contextmanager
def recording(
    model: nn.Module, *, enter: Enter | None = None, leaves: bool = False
) -> Iterator[RecordedPass]:
    """Record the inputs and outputs of a model's modules during a forward pass.

    `enter` is called with the name of a stack and the input of its first layer, and returns the
    input to use instead. With `leaves`, the input of each stack is a leaf of the autograd graph,
    even before any norm of the embedded tokens, because that norm may also leak.
    """
    forward = RecordedPass()
    with ExitStack() as hooks:

        def keep(kind: str, name: str, module: nn.Module) -> None:
            def called(_: nn.Module, args: tuple[Any, ...], y: Any) -> None:
                forward.calls[kind].setdefault(name, []).append(RecordedCall(args, y))

            hooks.callback(module.register_forward_hook(called).remove)

        def replace(module: nn.Module, change: Callable[[tuple[Any, ...]], Any]) -> None:
            before = module.register_forward_pre_hook(lambda _, args: change(args))
            hooks.callback(before.remove)

        def leaf(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
            forward.entered[name] = (args[0].detach().requires_grad_(), *args[1:])
            return forward.entered[name]

        for kind, place in {"residual": Residual, "attention": AttentionCore}.items():
            for name, module in modules_by_site(model, place).items():
                keep(kind, name, module)
        for name, stack in stacks(model).items():
            keep("stack", name, stack.last)
            for number, block in enumerate(stack.blocks):
                keep("layer", f"{name}.{number}", block)
            if leaves:
                replace(stack.entry, partial(leaf, name))
            if enter is not None:
                replace(stack.first, lambda args, n=name: (enter(n, args[0]), *args[1:]))
        yield forward


def deviation(values: Sequence[Float[Tensor, "*any"]]) -> float:
    """Return the RMS of deviations from the mean over sets, relative to the RMS of all values."""
    together = torch.stack(list(values)).double()
    return ratio(rms(together - together.mean(0)), rms(together))


def amount_in_words(share: float) -> str:
    """Return a relative change as text: `by 12.3 %`, or `not at all`."""
    if share < ROUNDING:
        return f"not at all{' (rounding)' if share else ''}"
    return f"by {percent(share)}"


def verdict_by_mode(most: Mapping[str, float], limit: float) -> Verdict:
    """Return `broken` if a dependence exceeds the limit in eval, `look` if only in training.

    If a norm pools over the batch, a dependence in training is by design.
    """
    training, in_eval = (most[mode] >= limit for mode in MODES)
    return "broken" if in_eval else "look" if training else "fine"
