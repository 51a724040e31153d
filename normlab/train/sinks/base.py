"""What a sink is: a receiver of a run's rows, notes and record; and a group that feeds several.

Only the main rank has sinks. A row is a flat dictionary of numbers with the key `step`; names are
paths (`train/loss`, `valid/bleu`). Scores are passed next to the row as `Score`s, so that a sink
that keeps the best of each knows which direction is better.
"""

import logging
from collections.abc import Mapping
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


class Sink:
    """Receive the rows of one run; a sink takes what it overrides."""

    required: ClassVar[bool] = False

    def open(self, run: RunInfo) -> str | None:
        """Prepare for the first row, and drop rows after `run.resumed_step` if any are kept.

        Returns a line for people where there is something to know (W&B kept offline, and why).
        """

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        """Take one row, with the scores of this step's validation if there was one."""

    def sync(self) -> None:
        """Force the rows so far onto the disk, before a checkpoint that resumes after them."""

    def stage(self, stage: Stage) -> None:
        """Take what the run does now, at every step and batch, also before it opens."""

    def sample(self, source: str, reference: str, output: str) -> None:
        """Take one example of what the tested weights make, before the run closes."""

    def note(self, text: str) -> None:
        """Take one line for people (resumed, early stop, diverged, a sink lost)."""

    def close(self, record: RunRecord | None) -> None:
        """Finish; `record` is None when the run ends without one (interrupted, an exception)."""


class SinkGroup(Sink):
    """Feed several sinks, named as in the config (`observe.sink.<name>`), as one.

    A sink that fails is dropped, with a note to the others, and the run continues. A `required`
    sink holds the run's own metrics: its error (a full disk) goes up to the caller.
    """

    def __init__(self, sinks: Mapping[str, Sink]) -> None:
        self._sinks = dict(sinks)

    def open(self, run: RunInfo) -> None:
        for line in filter(None, self._each("open", run)):
            self.note(line)

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        self._each("log", row, scores)

    def sync(self) -> None:
        self._each("sync")

    def stage(self, stage: Stage) -> None:
        self._each("stage", stage)

    def sample(self, source: str, reference: str, output: str) -> None:
        self._each("sample", source, reference, output)

    def note(self, text: str) -> None:
        self._each("note", text)

    def close(self, record: RunRecord | None) -> None:
        self._each("close", record)

    def _each(self, method: str, *arguments: object) -> list[Any]:
        answers: list[Any] = []
        lost: list[str] = []
        fatal: Exception | None = None
        for name, sink in list(self._sinks.items()):
            try:
                answers.append(getattr(sink, method)(*arguments))
            except Exception as error:
                if sink.required:
                    fatal = fatal or error
                    continue
                del self._sinks[name]
                lost.append(f"sink {name} stopped, training continues: {first_line(error)}")
        if fatal is not None:  # after the others, so that closing restores the terminal
            raise fatal
        for text in lost:
            if not self._sinks:  # the standard log still reaches the terminal
                logging.getLogger("normlab").warning(text)
            self.note(text)
        return answers


def first_line(error: BaseException) -> str:
    """Return the kind of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def merged(row: Row, scores: Mapping[str, Score]) -> dict[str, float | int]:
    """Return the row with the values of the scores in it."""
    return {**row, **{name: score.value for name, score in scores.items()}}
