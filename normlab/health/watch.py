"""Seeing what passes through a model: the inputs of its norms, the ends of its streams."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.models.anatomy import Anatomy, stacks
from normlab.norms.base import Norm
from normlab.probes.sites import real_values, sites


@dataclass(frozen=True)
class Passage:
    """What passed a norm: its input, its output, and which tokens are real."""

    x: Float[Tensor, "B P D"]
    y: Float[Tensor, "B P D"]
    valid: Bool[Tensor, "B P"]

    def followed_by(self, other: "Passage") -> "Passage":
        """Return the positions of both, one behind the other."""
        pairs = ((self.x, other.x), (self.y, other.y), (self.valid, other.valid))
        return Passage(*(torch.cat(pair, dim=1) for pair in pairs))


@contextmanager
def norms_watched(model: nn.Module, kind: type[Norm] = Norm) -> Iterator[dict[str, Passage]]:
    """Collect what last passed each norm of a class, by site, in the order of the forward pass.

    The positions that a recurrence gives one at a time are one passage.
    """
    seen: dict[str, Passage] = {}

    def look_at(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
            before = seen.pop(name, None)
            found = Passage(arguments[0], output, arguments[1].real(output))
            start = arguments[1].start
            if before is not None and start == before.valid.shape[1]:
                found = before.followed_by(found)
            seen[name] = found

        return look

    with ExitStack() as stack:
        for name, norm in sites(model, kind).items():
            handle = norm.register_forward_hook(look_at(name))
            stack.callback(handle.remove)
        yield seen


@dataclass
class Ends:
    """The first and the last values of a stack's stream, and which of the last are real."""

    first: Float[Tensor, "B P D"]
    valid: Bool[Tensor, "B p"]
    last: Float[Tensor, "B p F"]


NO_STACKS = "the model declares no stack of layers"


@contextmanager
def stacks_watched(
    model: nn.Module, enter: Callable[[str, Tensor], Tensor] = lambda _, x: x
) -> Iterator[dict[str, Ends]]:
    """Collect the ends of each stack (`encoder`, `decoder`), by name.

    `enter` may replace the first values by others: it is given the stack's name and the values.
    """
    seen: dict[str, Ends] = {}
    with ExitStack() as hooks:
        for name, stack in stacks(model).items():
            for handle in _watch(name, stack, seen, enter):
                hooks.callback(handle.remove)
        yield seen


def _watch(
    name: str, stack: Anatomy, seen: dict[str, Ends], enter: Callable[[str, Tensor], Tensor]
) -> Iterator[Any]:
    def begun(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        entered = (enter(name, arguments[0]), *arguments[1:])
        first, valid = real_values(entered[0], entered)
        seen[name] = Ends(first=first, valid=valid, last=first)
        return entered

    def ended(_: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        seen[name].last, seen[name].valid = real_values(output, arguments)

    yield stack.first.register_forward_pre_hook(begun)
    yield stack.last.register_forward_hook(ended)
