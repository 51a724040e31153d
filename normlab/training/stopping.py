"""Decides when a run ends (budget, signal or patience), and records its validation scores."""

import math
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import msgspec

from normlab.errors import UserError
from normlab.metrics.glossary import new_score
from normlab.records.record import Score

CONVERGED = 0.01  # a run has converged once its loss is at most 1 % above its last loss,
TAIL = 0.2  # provided that the loss improved by less than 1 % over the last 20 % of the run


DEBUG_STEPS = 3
"""The maximum number of steps of a run with `observe.debug`."""


@dataclass(frozen=True)
class Budget:
    """The limits of a run. None means no limit, and at least one limit is set.

    `tokens` counts target tokens. With a limit in minutes, the number of steps depends on the
    machine.
    """

    steps: int | None = None
    epochs: float | None = None
    tokens: int | None = None
    minutes: float | None = None

    def for_debugging(self) -> "Budget":
        """Return this budget with at most `DEBUG_STEPS` steps."""
        return replace(self, steps=min(self.steps or DEBUG_STEPS, DEBUG_STEPS))

    def shares(self, *, steps: int, epochs: float, tokens: int, seconds: float) -> dict[str, float]:
        """Return the share of each limit that has been used, by the limit's name."""
        used = {"steps": steps, "epochs": epochs, "tokens": tokens, "minutes": seconds / 60}
        limits = {name: limit for name, limit in vars(self).items() if limit is not None}
        return {name: used[name] / limit for name, limit in limits.items()}

    def spent(self, **used: Any) -> str | None:
        """Return the name of a limit that has been reached, or None.

        The arguments are the same as for `shares`.
        """
        return next((name for name, share in self.shares(**used).items() if share >= 1), None)


_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGXCPU")
STOP_SIGNALS = tuple(signal.Signals[name] for name in _NAMES if hasattr(signal, name))
"""Signals that ask a run to save and stop: Ctrl-C, `kill`, a closed terminal, a scheduler's warning
before its time limit (SIGUSR1 in Slurm), and a limit on processor time.
"""


def heeded_signals() -> list[signal.Signals]:
    """Return the signals to handle: Ctrl-C, SIGTERM, and others that have no handler yet.

    Under `nohup`, SIGHUP is ignored, and in a job of submitit, submitit may handle SIGUSR1.
    """
    always = (signal.SIGTERM, signal.SIGINT)
    return [s for s in STOP_SIGNALS if s in always or signal.getsignal(s) == signal.SIG_DFL]


class Interrupts:
    """A context in which a first signal only asks the loop to stop. A second one acts at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        for number in heeded_signals():
            try:
                self._former[number] = signal.signal(number, self._remember)
            except ValueError:  # not in the main thread, where the host program handles signals
                return self
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        signal.signal(number, self._former[number])


class Validation(msgspec.Struct, frozen=True):
    """The scores of a validation by path, such as `valid/bleu`, with its step and tokens."""

    step: int
    tokens: int
    scores: dict[str, Score]

    def score(self, name: str) -> Score:
        """Return the score `valid/<name>`, or raise UserError with the list of scores."""
        if (value := self.scores.get(f"valid/{name}")) is None:
            available = ", ".join(sorted(path.removeprefix("valid/") for path in self.scores))
            raise UserError(f"{name} is not a score of this task; choose from {available}")
        return value


class Validations:
    """All validations of a run so far, in order."""

    def __init__(self) -> None:
        self.history: list[Validation] = []

    def best(self, name: str) -> Validation:
        """Return the best validation by a score, the first in a tie. NaN is worst."""

        def goodness(validation: Validation) -> float:
            score = validation.score(name)
            value = score.value if score.higher_is_better else -score.value
            return -math.inf if math.isnan(value) else value

        return max(self.history, key=goodness)

    def since_best(self, name: str) -> int:
        """Return the number of validations after the best one by a score."""
        return len(self.history) - 1 - self.history.index(self.best(name)) if self.history else 0

    def reached(
        self, targets: Mapping[str, Sequence[int | float]], *, lost: bool
    ) -> dict[str, Score]:
        """Return the steps and tokens after which each target held until the end of the run.

        Both are infinite if a target does not hold at the end, or if the run is `lost`. Their names
        are `valid/steps_to/<score>_<value>` and `valid/tokens_to/<score>_<value>`.
        """
        scores: dict[str, Score] = {}
        for name, values in targets.items():
            for value in values:
                since = None if lost else self._holds_since(name, value)
                scores |= _place(since, f"_to/{name}_{value:g}", len(self.history))
        return scores

    def _holds_since(self, name: str, value: int | float) -> Validation | None:
        since = None
        for validation in self.history:
            score = validation.score(name)
            holds = score.value >= value if score.higher_is_better else score.value <= value
            since = (since or validation) if holds else None
        return since

    def converged(self, *, lost: bool) -> dict[str, Score]:
        """Return the steps and tokens that the run needed to converge.

        A run converges at the first validation whose loss is at most `CONVERGED` above the last
        loss, provided that the loss improved by less than that over the last `TAIL` of the run.
        Both are infinite if the run did not converge, if no validation precedes that tail, or if
        the run is `lost`. Their names are `valid/steps_to_converge` and `valid/tokens_to_converge`.
        """
        losses = [
            (v, v.scores["valid/loss"].value) for v in self.history if "valid/loss" in v.scores
        ]
        place = None
        if losses and not lost and math.isfinite(last := losses[-1][1]):
            bound = last + CONVERGED * abs(last)
            end = (1 - TAIL) * losses[-1][0].step
            before = [loss for validation, loss in losses if validation.step <= end]
            if before and before[-1] < bound:
                place = next(validation for validation, loss in losses if loss <= bound)
        return _place(place, "_to_converge", len(losses))

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the validations as plain values."""
        return msgspec.to_builtins(self.history)

    def load_state_dict(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restore a state returned by `state_dict`."""
        self.history = msgspec.convert(state, list[Validation])


def _place(at: Validation | None, name: str, count: int) -> dict[str, Score]:
    """Return the steps and tokens of a validation as scores, which are infinite if it is None."""
    steps, tokens = (math.inf, math.inf) if at is None else (at.step, at.tokens)
    values = {f"valid/steps{name}": float(steps), f"valid/tokens{name}": float(tokens)}
    return {path: new_score(path, value, count) for path, value in values.items()}
