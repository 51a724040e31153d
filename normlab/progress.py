"""How far a piece of long work is: who does it says so, who shows it listens.

Where nobody listens, saying costs nothing; what is said never changes the work.
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
    """What is being done: the phase, how many of how many, and in training the step's loss.

    In training `done` counts steps, in validating and testing examples. `total` is None where
    nobody knows.
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


@dataclass
class _Heard:
    listener: Listener
    stage: Stage


_HEARD: ContextVar[_Heard | None] = ContextVar("heard", default=None)


@contextmanager
def heard_by(listener: Listener) -> Generator[None]:
    """Within the block, `listener` is told every stage."""
    token = _HEARD.set(_Heard(listener, Stage(PREPARING)))
    try:
        yield
    finally:
        _HEARD.reset(token)


def say(stage: Stage) -> None:
    """Tell whoever listens what is being done from now on."""
    heard = _HEARD.get()
    if heard is not None:
        heard.stage = stage
        heard.listener(stage)


def counted(items: Sequence[Item], size: Callable[[Item], int] = lambda _: 1) -> Iterator[Item]:
    """Yield the items of the phase that was said last, and say after each how far that is.

    `size` is what an item counts for, as the examples of a batch.
    """
    heard = _HEARD.get()
    if heard is None:
        yield from items
        return
    total = sum(map(size, items))
    say(replace(heard.stage, done=0, total=total))
    for item in items:
        yield item
        say(replace(heard.stage, done=heard.stage.done + size(item), total=total))
