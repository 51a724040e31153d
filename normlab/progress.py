"""How far long work is: the worker says so, and a listener shows it.

Without a listener, saying costs nothing; what is said never changes the work.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TypeVar

PREPARING, TRAINING, VALIDATING, TESTING = "preparing", "training", "validating", "testing"
Item = TypeVar("Item")


@dataclass(frozen=True)
class Stage:
    """What is being done: the phase, how much of how much, and in training the step's loss.

    In training `done` counts steps, in validating and testing examples; `total` may be unknown.
    """

    phase: str
    done: int = 0
    total: int | None = None
    loss: float | None = None

    def __str__(self) -> str:
        if self.total is None:
            return f"{self.phase} {self.done:,}" if self.done else self.phase
        return f"{self.phase} {self.done:,}/{self.total:,}"


Listener = Callable[[Stage], object]
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)
_PHASE: ContextVar[str] = ContextVar("phase", default=PREPARING)


@contextmanager
def heard_by(listener: Listener) -> Generator[None]:
    """Within the block, `listener` is told every stage."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def say(stage: Stage) -> None:
    """Tell the listener what is being done from now on."""
    _PHASE.set(stage.phase)
    if (listener := _LISTENER.get()) is not None:
        listener(stage)


def counted(items: Sequence[Item], size: Callable[[Item], int] = lambda _: 1) -> Iterator[Item]:
    """Yield the items of the current phase, and say after each how far it is.

    `size` is what an item counts for, as the examples of a batch.
    """
    stage = Stage(_PHASE.get(), 0, sum(map(size, items)))
    say(stage)
    for item in items:
        yield item
        say(stage := replace(stage, done=stage.done + size(item)))
