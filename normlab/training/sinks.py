"""Sinks for a run's metrics: the base class, a group of several sinks, and the run's own files.

Only the main rank has sinks. A row is a flat dictionary of numbers with the key `step`, and names
are paths (`train/loss`, `valid/bleu`). Scores are passed with the row as `Score`s, so that a sink
that keeps the best value knows which direction is better.

`metrics.jsonl` has one row per line, as a JSON object. A row reaches the operating system before
training continues, so no row is lost if the process is killed. A resumed run drops rows after its
checkpoint and an unfinished last line; therefore the trainer logs a step's row before it saves that
step's checkpoint. Numbers that are not finite are written as `"nan"`, `"inf"`, `"-inf"`.
`progress.json` shows how far a running run is.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, ClassVar, NamedTuple, TypeVar

from normlab.records.files import atomic_write, read_file, sync_folder
from normlab.records.record import RunRecord, Score, fingerprint, plain
from normlab.records.store import METRICS_FILE, PROGRESS_FILE, rows_of
from normlab.stages import Pace, Stage

Row = Mapping[str, float | int]
NO_SCORES: Mapping[str, Score] = MappingProxyType({})
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class RunInfo:
    """Facts about a run, which are passed to a sink when it is opened.

    `resumed_step` is the step of the checkpoint that the run resumes from (0 for a new run), and
    `resumed_rows` is the number of rows logged by then. `unit` is the unit of the run's budget,
    such as `tokens` or `pictures`.
    """

    run_dir: Path
    config: dict[str, Any]
    resumed_step: int = 0
    resumed_rows: int = 0
    unit: str = "tokens"

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.config)

    @property
    def choices(self) -> dict[str, Any]:
        """The chosen option of each group (`norm`, `placement`, ...), or None if it has none."""
        return self.config["choices"]


class Notice(NamedTuple):
    """A line for the user about the run, or a warning."""

    text: str
    warning: bool = False

    def __str__(self) -> str:
        return f"warning: {self.text}" if self.warning else self.text


class Sink:
    """A receiver of a run's rows and notices. Subclasses override the methods that they need."""

    required: ClassVar[bool] = False

    def open(self, run: RunInfo) -> Notice | None:
        """Prepare for the first row, and discard earlier rows of steps after `run.resumed_step`.

        Returns a notice if there is anything to report, such as why W&B is offline.
        """

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        """Receive one row, with the scores of this step's validation if there was one."""

    def sync(self) -> None:
        """Flush the rows written so far to disk, before a checkpoint is saved."""

    def stage(self, stage: Stage) -> None:
        """Receive the stage at every training step and scored batch, even before `open`."""

    def note(self, notice: Notice) -> None:
        """Receive a notice, such as that the run was resumed or diverged."""

    def close(self, record: RunRecord | None) -> None:
        """Finish. `record` is None if the run ends without one, after a stop or an exception."""


class SinkGroup(Sink):
    """Several sinks as one, by their names in the config (`observe.sink.<name>`).

    If a sink fails, it is dropped with a note to the other sinks, and the run continues. The error
    of a `required` sink, which holds the run's own metrics, is raised (for example, a full disk).
    """

    def __init__(self, sinks: Mapping[str, Sink]) -> None:
        self._sinks = dict(sinks)

    def open(self, run: RunInfo) -> None:
        for notice in filter(None, self._each(lambda sink: sink.open(run))):
            self.note(notice)

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        self._each(lambda sink: sink.log(row, scores))

    def sync(self) -> None:
        self._each(lambda sink: sink.sync())

    def stage(self, stage: Stage) -> None:
        self._each(lambda sink: sink.stage(stage))

    def note(self, notice: Notice) -> None:
        """Pass a notice to the sinks. Without a console, a warning goes to the standard log.

        Ranks other than the main rank have no sinks, and do not repeat its warnings.
        """
        self._each(lambda sink: sink.note(notice))
        if notice.warning and self._sinks and "console" not in self._sinks:
            logging.getLogger("normlab").warning(str(notice))

    def close(self, record: RunRecord | None) -> None:
        self._each(lambda sink: sink.close(record))

    def _each(self, call: Callable[[Sink], _Answer]) -> list[_Answer]:
        """Call each sink, and return the answers of those that do not fail."""
        answers: list[_Answer] = []
        lost: list[str] = []
        fatal: Exception | None = None
        for name, sink in list(self._sinks.items()):
            try:
                answers.append(call(sink))
            except Exception as error:
                if sink.required:
                    fatal = fatal or error
                    continue
                del self._sinks[name]
                lost.append(f"sink {name} stopped, but training continues: {first_line(error)}")
        if fatal is not None:  # after the other sinks, so that closing them restores the terminal
            raise fatal
        for text in lost:
            if not self._sinks:  # the standard log still reaches the terminal
                logging.getLogger("normlab").warning(text)
            self.note(Notice(text))
        return answers


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def merged(row: Row, scores: Mapping[str, Score]) -> dict[str, float | int]:
    """Return the row with the scores' values added."""
    return {**row, **{name: score.value for name, score in scores.items()}}


class Jsonl(Sink):
    """Appends rows to `metrics.jsonl`, which is empty at the start of a new run."""

    required = True

    def __init__(self) -> None:
        self._file: IO[str] | None = None

    def open(self, run: RunInfo) -> Notice | None:
        path = run.run_dir / METRICS_FILE
        run.run_dir.mkdir(parents=True, exist_ok=True)
        rows = truncate_to(path, run.resumed_step) if run.resumed_step else 0
        self._file = path.open("a" if run.resumed_step else "w", encoding="utf-8", newline="\n")
        sync_folder(run.run_dir)
        if rows < run.resumed_rows:
            return Notice(
                f"{path} has lost {run.resumed_rows - rows} of {run.resumed_rows} rows before step "
                f"{run.resumed_step}: its curves have a gap; scores are unaffected",
                warning=True,
            )
        return None

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        with self._naming_the_file() as file:
            file.write(json.dumps(plain(merged(row, scores)), allow_nan=False) + "\n")
            file.flush()

    def sync(self) -> None:
        with self._naming_the_file() as file:
            os.fsync(file.fileno())

    def close(self, record: RunRecord | None) -> None:
        if self._file is not None:
            # closing retries writes that have failed on a full disk
            with self._naming_the_file() as file:
                self._file = None
                file.close()

    @contextmanager
    def _naming_the_file(self) -> Iterator[IO[str]]:
        """Add the file's path to an `OSError` in the context, because a failed write has none."""
        file = self._file
        assert file is not None, "a sink that is not open"
        try:
            yield file
        except OSError as error:
            raise OSError(error.errno, error.strerror, file.name) from error


def truncate_to(path: Path, step: int) -> int:
    """Drop rows after `step` and an unfinished last line, and return the number of rows kept."""
    if not path.exists():
        return 0
    text = read_file(path)
    remaining = [line for line, row in rows_of(text, path) if row["step"] <= step]
    if (content := b"".join(remaining)) != text:
        with atomic_write(path, "wb") as file:
            file.write(content)
    return len(remaining)


class Live(Sink):
    """Maintains `progress.json`: a `Stage`, the seconds left, and whether all steps are done.

    The file is written at most once per second within a phase, and deleted when the run ends.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROGRESS_FILE
        self._partial = folder / f".{PROGRESS_FILE}.{os.getpid()}.partial"
        self._pace = Pace()
        self._phase, self._written, self._loss = "", 0.0, None

    def stage(self, stage: Stage) -> None:
        self._pace.see(stage)
        self._loss = stage.loss if stage.loss is not None else self._loss
        now = time.monotonic()
        if stage.phase == self._phase and now - self._written < 1.0:
            return
        self._phase, self._written = stage.phase, now
        content = {**stage._asdict(), "loss": self._loss}
        content |= {"left": self._pace.left, "trained": self._pace.trained}
        # It is not synced to disk, because it is deleted when the run ends.
        self._partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
        self._partial.replace(self._path)

    def close(self, record: RunRecord | None) -> None:
        self._path.unlink(missing_ok=True)
