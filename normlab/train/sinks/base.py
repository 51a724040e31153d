"""What a sink is: a receiver of a run's rows, notes and record; and a group that feeds several.

Only the main rank has sinks. A row is a flat dictionary of numbers with the key `step`; names are
paths (`train/loss`, `valid/bleu`). Scores are passed next to the row as `Score`s, so that a sink
that keeps the best of each knows which direction is better.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from normlab.progress import Stage
from normlab.records.record import RunRecord, Score

Row = Mapping[str, float | int]
NO_SCORES: Mapping[str, Score] = MappingProxyType({})


@dataclass(frozen=True)
class RunInfo:
    """What a sink knows of the run when it opens.

    `choices` are the options by group (`norm`, `placement`, `task`, ...), None where a group has
    none. `total_steps` is None when the budget is not counted in steps. `resumed_step` is the step
    of the checkpoint that the run resumes from, 0 for a new run, and `resumed_rows` the number of
    rows logged by then. `unit` is what the run's tokens are called, such as `pictures`.
    """

    run_dir: Path
    run_id: str
    fingerprint: str
    config: dict[str, Any]
    choices: dict[str, Any]
    total_steps: int | None
    resumed_step: int = 0
    resumed_rows: int = 0
    unit: str = "tokens"


class Sink(ABC):
    """Receive the rows of one run."""

    required: ClassVar[bool] = False

    @abstractmethod
    def open(self, run: RunInfo) -> str | None:
        """Prepare for the first row, and drop rows after `run.resumed_step` if any are kept.

        Returns a line for people where there is something to know (W&B kept offline, and why).
        """

    @abstractmethod
    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        """Take one row, with the scores of this step's validation if there was one."""

    def sync(self) -> None:  # noqa: B027 - optional hook
        """Force the rows so far onto the disk, before a checkpoint that resumes after them."""

    def stage(self, stage: Stage) -> None:  # noqa: B027 - optional hook
        """Take what the run does now, at every step and batch, also before it opens."""

    def sample(self, source: str, reference: str, output: str) -> None:  # noqa: B027 - optional
        """Take one example of what the tested weights make, before the run closes."""

    def note(self, text: str) -> None:  # noqa: B027 - optional hook
        """Take one line for people (resumed, early stop, diverged, a sink lost)."""

    def close(self, record: RunRecord | None) -> None:  # noqa: B027 - optional hook
        """Finish; `record` is None when the run ends without one (interrupted, an exception)."""


class SinkGroup(Sink):
    """Feed several sinks, named as in the config (`observe.sink.<name>`), as one.

    A sink that fails is dropped, with a note to the others, and the run continues. A `required`
    sink holds the run's own metrics: its error (a full disk) goes up to the caller.
    """

    def __init__(self, sinks: Mapping[str, Sink]) -> None:
        self._sinks = dict(sinks)

    def open(self, run: RunInfo) -> None:
        lines: list[str] = []
        self._each(lambda sink: lines.append(sink.open(run) or ""))
        for line in filter(None, lines):
            self.note(line)

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        assert "step" in row, "a row without its step"
        self._each(lambda sink: sink.log(row, scores))

    def sync(self) -> None:
        self._each(lambda sink: sink.sync())

    def stage(self, stage: Stage) -> None:
        self._each(lambda sink: sink.stage(stage))

    def sample(self, source: str, reference: str, output: str) -> None:
        self._each(lambda sink: sink.sample(source, reference, output))

    def note(self, text: str) -> None:
        self._each(lambda sink: sink.note(text))

    def close(self, record: RunRecord | None) -> None:
        self._each(lambda sink: sink.close(record))

    def _each(self, call: Callable[[Sink], None]) -> None:
        lost: list[str] = []
        fatal: Exception | None = None
        for name, sink in list(self._sinks.items()):
            try:
                call(sink)
            except Exception as error:
                if sink.required:
                    fatal = fatal or error
                    continue
                del self._sinks[name]
                lost.append(
                    f"sink {name} stopped, training goes on: "
                    f"{type(error).__name__}: {first_line(error)}"
                )
        if fatal is not None:  # after the others, so that closing restores the terminal
            raise fatal
        for text in lost:
            # Without a sink left to say it, the standard log still reaches the terminal.
            if not self._sinks:
                logging.getLogger("normlab").warning(text)
            self.note(text)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, for a note of one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"


def merged(row: Row, scores: Mapping[str, Score]) -> dict[str, float | int]:
    """Return the row with the values of the scores in it."""
    return {**row, **{name: score.value for name, score in scores.items()}}
