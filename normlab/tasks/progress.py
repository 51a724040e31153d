"""Progress of long work, reported to a listener if there is one. No torch here."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

PREPARING, TRAINING, VALIDATING, TESTING = "preparing", "training", "validating", "testing"
Item = TypeVar("Item")


class Stage(NamedTuple):
    """What is being done: the phase, how much of it is done, and in training the step's loss.

    `done` counts steps in training, and examples in validating and testing; `total` may be unknown.
    """

    phase: str
    done: int = 0
    total: int | None = None
    loss: float | None = None

    def __str__(self) -> str:
        if self.total is None:
            return f"{self.phase} {self.done:,}" if self.done else self.phase
        return f"{self.phase} {self.done:,}/{self.total:,}"


_LISTENER: ContextVar[Callable[[Stage], object]] = ContextVar("listener", default=lambda _: None)
_PHASE: ContextVar[str] = ContextVar("phase", default=PREPARING)


@contextmanager
def heard_by(listener: Callable[[Stage], object]) -> Generator[None]:
    """Within the block, pass every stage to `listener`."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def say(stage: Stage) -> None:
    """Report to the listener what is being done from now on."""
    _PHASE.set(stage.phase)
    _LISTENER.get()(stage)


def counted(items: Sequence[Item], size: Callable[[Item], int] = lambda _: 1) -> Iterator[Item]:
    """Yield the items of the current phase, and report after each how much of it is done."""
    done, total = 0, sum(map(size, items))
    say(Stage(_PHASE.get(), done, total))
    for item in items:
        yield item
        done += size(item)
        say(Stage(_PHASE.get(), done, total))
