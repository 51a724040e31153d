"""What a model declares of itself, so that who looks into one need not know which it is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn


@dataclass(frozen=True)
class Anatomy:
    """Where a stream of values runs through a stack, and what the stack repeats.

    Each module is called with values and their stream, or with pictures alone (`real_values`).

    Attributes:
        entry: its input depends on the stack's own tokens or pixels alone; no norm stands before.
        first: its input are the first values that the blocks work on.
        last: its output are the last ones.
        both_ways: whether a position sees those after it, as is its due.
        room: the most positions that it takes; None for any number.
        blocks: what is compiled, each by itself; none where a loop over positions would unroll.
    """

    entry: nn.Module
    first: nn.Module
    last: nn.Module
    both_ways: bool
    room: int | None
    blocks: Iterable[nn.Module]


class Stack(nn.Module, ABC):
    """A part of a model, or all of it, that declares its anatomy."""

    @abstractmethod
    def anatomy(self) -> Anatomy:
        """Return what it is made of."""


@runtime_checkable
class SubLayer(Protocol):
    """A part of a layer that says what it does, in a word: what probes look at, and report by.

    It is called as the modules of an `Anatomy` are, and returns values, or a tuple of values and
    states. Its parameters are of its kind, but for those of norms and of embeddings.
    """

    sublayer: str


def sublayer(module: nn.Module) -> str | None:
    """Return what a module says that it does; None of one that is no sub-layer."""
    return module.sublayer if isinstance(module, SubLayer) else None


def stacks(model: nn.Module) -> dict[str, Anatomy]:
    """Return the stacks of a model by name (`encoder`, `decoder`); `network` is the model itself.

    None of a model that declares none.
    """
    return {
        name or "network": module.anatomy()
        for name, module in model.named_modules()
        if isinstance(module, Stack)
    }
