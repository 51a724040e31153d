"""Progress reports of long-running work to an optional listener, without importing torch."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

PREPARING, TRAINING, VALIDATING, TESTING = "preparing", "training", "validating", "testing"
Item = TypeVar("Item")


class Stage(NamedTuple):
    """The current phase and its progress, and in training the loss of the step.

    `done` counts steps in training, and examples in validation and test. `total` is None if
    unknown. `spent` is the share that has been used of a training budget in tokens, epochs or
    minutes.
    """

    phase: str
    done: int = 0
    total: int | None = None
    loss: float | None = None
    spent: float | None = None

    @property
    def share(self) -> float | None:
        """Return the share of the phase that is done, from 0 to 1, or None if unknown."""
        if self.spent is None and self.total:
            return self.done / self.total
        return self.spent

    def __str__(self) -> str:
        if self.total is not None:
            return f"{self.phase} {self.done:,}/{self.total:,}"
        share = "" if self.spent is None else f" ({self.spent:.0%})"
        return f"{self.phase} {self.done:,}{share}" if self.done else self.phase


_LISTENER: ContextVar[Callable[[Stage], object]] = ContextVar("listener", default=lambda _: None)
_PHASE: ContextVar[str] = ContextVar("phase", default=PREPARING)


@contextmanager
def heard_by(listener: Callable[[Stage], object]) -> Generator[None]:
    """Pass every reported stage to `listener` inside the context."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def say(stage: Stage) -> None:
    """Report the current stage to the listener."""
    _PHASE.set(stage.phase)
    _LISTENER.get()(stage)


def counted(items: Sequence[Item], size: Callable[[Item], int] = lambda _: 1) -> Iterator[Item]:
    """Yield `items`, and report the progress of the current phase after each item."""
    done, total = 0, sum(map(size, items))
    say(Stage(_PHASE.get(), done, total))
    for item in items:
        yield item
        done += size(item)
        say(Stage(_PHASE.get(), done, total))
