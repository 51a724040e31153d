"""The run's own files: `metrics.jsonl`, the source of every curve, and `progress.json`.

A row of `metrics.jsonl` is one JSON object per line and reaches the operating system before
training continues, so a killed process loses none. A resumed run drops the rows after its
checkpoint, and a half-written last line; so the trainer logs a step's row before it saves that
step's checkpoint. Numbers that are not finite are `"nan"`, `"inf"`, `"-inf"`.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from normlab.progress import TRAINING, Stage
from normlab.records.files import atomic_write, read_file, sync_folder
from normlab.records.record import RunRecord, Score, plain
from normlab.records.store import METRICS_FILE, PROGRESS_FILE, rows_of
from normlab.train.sinks.base import NO_SCORES, Row, RunInfo, Sink, merged

_EVERY = 1.0  # seconds


class Jsonl(Sink):
    """Append rows to `metrics.jsonl`; a new run starts it empty."""

    required = True

    def __init__(self) -> None:
        self._file: IO[str] | None = None

    def open(self, run: RunInfo) -> str | None:
        path = run.run_dir / METRICS_FILE
        run.run_dir.mkdir(parents=True, exist_ok=True)
        kept = truncate_to(path, run.resumed_step) if run.resumed_step else 0
        self._file = path.open("a" if run.resumed_step else "w", encoding="utf-8", newline="\n")
        sync_folder(run.run_dir)
        if kept < run.resumed_rows:
            return (
                f"warning: {path} has lost {run.resumed_rows - kept} of {run.resumed_rows} rows "
                f"before step {run.resumed_step}: its curves have a gap, its scores do not change"
            )
        return None

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        with self._named() as file:
            file.write(json.dumps(plain(merged(row, scores)), allow_nan=False) + "\n")
            file.flush()

    def sync(self) -> None:
        with self._named() as file:
            os.fsync(file.fileno())

    def close(self, record: RunRecord | None) -> None:
        if self._file is not None:
            with self._named() as file:  # what a full disk did not take is tried again
                self._file = None
                file.close()

    @contextmanager
    def _named(self) -> Iterator[IO[str]]:
        """Name the file in an `OSError` of writing, which does not by itself."""
        file = self._file
        assert file is not None, "a sink that is not open"
        try:
            yield file
        except OSError as error:
            raise OSError(error.errno, error.strerror, file.name) from error


def truncate_to(path: Path, step: int) -> int:
    """Drop rows after `step`, and a last line that a kill left unfinished; return rows kept."""
    if not path.exists():
        return 0
    text = read_file(path)
    kept = [line for line, row in rows_of(text, path) if row["step"] <= step]
    if (content := b"".join(kept)) != text:
        with atomic_write(path, "wb") as file:
            file.write(content)
    return len(kept)


class Pace:
    """The time left, by all steps since the first that was seen, validations included."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._last = Stage(TRAINING)

    def see(self, stage: Stage) -> None:
        """Take a stage; only training steps count."""
        if stage.phase == TRAINING:
            self._first = self._first or (stage.done, time.monotonic())
            self._last = stage

    @property
    def left(self) -> float | None:
        """The seconds of training that are left; None if unknown."""
        done, total = self._last.done, self._last.total
        if self._first is None or total is None or done <= self._first[0]:
            return None
        elapsed = time.monotonic() - self._first[1]
        return elapsed / (done - self._first[0]) * (total - done)


class Live(Sink):
    """Keep `progress.json`: phase, done, total, loss, and the seconds of training left.

    It is written at most once a second within a phase, and removed when the run ends.
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
        if stage.phase == self._phase and now - self._written < _EVERY:
            return
        self._phase, self._written = stage.phase, now
        said = {**vars(stage), "loss": self._loss, "left": self._pace.left}
        # Not forced to the disk: it is worth nothing once the run has ended.
        self._partial.write_text(json.dumps(said) + "\n", encoding="utf-8")
        self._partial.replace(self._path)

    def close(self, record: RunRecord | None) -> None:
        self._path.unlink(missing_ok=True)
