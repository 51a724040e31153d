"""Stages of long-running work, which are reported to a listener, and the estimated time left.

Nothing here imports torch.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

PREPARING, TRAINING, VALIDATING, TESTING = "preparing", "training", "validating", "testing"
Item = TypeVar("Item")


class Stage(NamedTuple):
    """The current phase and its progress and, in training, the loss of the step.

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


_MARKS = 50  # minimum number of time marks of a run


class Pace:
    """Estimates the time left: of training until its last step, then of the current phase.

    Training steps are extrapolated from the recent half of the training time, because the first
    steps are slow and the machine's load may change. Validations during training are extrapolated
    from their mean. The last validation and the test count only while they run.
    """

    def __init__(self) -> None:
        self._marks = deque[tuple[float, float]]()  # (share of training done, its seconds)
        self._first: float | None = None  # the share at the start
        self._step_seconds = self._pause_seconds = 0.0
        self._step_time = 0.0  # seconds of the last step
        self._training = Stage(TRAINING)
        self._now = self._begun = (Stage(TRAINING), 0.0)  # the stage, and its time

    def see(self, stage: Stage) -> None:
        """Record a stage."""
        self._now, before = (stage, time.monotonic()), self._now[0]
        if stage.phase == TRAINING:
            self._step(stage, after_pause=before.phase != TRAINING)
        elif stage.phase != before.phase or stage.done < before.done:
            self._begun = self._now

    def _step(self, stage: Stage, *, after_pause: bool) -> None:
        """Record a training step; after a pause, its time counts as part of the pause."""
        self._training, now = stage, self._now[1]
        if stage.share is None:
            return
        if self._first is None:
            self._first = stage.share
        elif after_pause:
            self._pause_seconds += now - self._step_time
        else:
            self._step_seconds += now - self._step_time
        self._step_time = now
        marks, seconds = self._marks, self._step_seconds
        if not marks or seconds - marks[-1][1] >= seconds / _MARKS:
            marks.append((stage.share, seconds))
        while len(marks) > 1 and marks[1][1] <= seconds / 2:
            marks.popleft()

    @property
    def trained(self) -> bool:
        """Whether the last training step has been taken."""
        return self._training.share is not None and self._training.share >= 1

    @property
    def left(self) -> float | None:
        """Return the estimated seconds left, or None if unknown."""
        if not self.trained:
            share, first = self._training.share, self._first
            if share is None or first is None or share <= self._marks[0][0]:
                return None
            recent_share, recent = self._marks[0]
            step = (self._step_seconds - recent) / (share - recent_share)
            return (step + self._pause_seconds / (share - first)) * (1 - share)
        stage, now = self._now
        if stage.phase == TRAINING:
            return None
        first, begun = self._begun
        return _remaining(first.share or 0.0, begun, stage.share, now)


def _remaining(first: float, begun: float, share: float | None, now: float) -> float | None:
    """Return the estimated seconds until all is done, given the shares at `begun` and `now`."""
    if share is None or share <= first:
        return None
    return (now - begun) / (share - first) * (1 - share)
