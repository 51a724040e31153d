"""The run's own metrics: `metrics.jsonl` in the run folder, a JSON object a row, flushed.

This file is the source of every curve; other sinks are copies. A row reaches the operating system
before training goes on, so a killed process loses none. A resumed run drops the rows after its
checkpoint, and with them a half-written last line, and then writes them anew; the trainer therefore
logs a step's row before it saves that step's checkpoint. Numbers that are not finite are written
as `records.canonical` says: `"nan"`, `"inf"`, `"-inf"`.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from normlab.records.atomic import atomic_write
from normlab.records.canonical import plain
from normlab.records.files import read_file
from normlab.records.record import RunRecord, Score
from normlab.records.rows import METRICS_FILE, rows_of
from normlab.train.sinks.base import NO_SCORES, Row, RunInfo, Sink, merged


class Jsonl(Sink):
    """Append rows to `metrics.jsonl`; notes and the record have no place in it."""

    required = True

    def __init__(self) -> None:
        self._file: IO[str] | None = None

    def open(self, run: RunInfo) -> str | None:
        """Open the file; a new run starts it empty, a resumed one keeps rows to its checkpoint."""
        kept = 0
        path = run.run_dir / METRICS_FILE
        run.run_dir.mkdir(parents=True, exist_ok=True)
        if run.resumed_step == 0:
            path.unlink(missing_ok=True)
        else:
            kept = truncate_to(path, run.resumed_step)
        self._file = path.open("a", encoding="utf-8", newline="\n")
        if kept < run.resumed_rows:
            return (
                f"warning: {path} has lost {run.resumed_rows - kept} of {run.resumed_rows} rows "
                f"before step {run.resumed_step}: its curves have a gap, its scores do not change"
            )
        return None

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        """Write and flush one line."""
        assert self._file is not None, "log before open"
        with _naming(self._file):
            self._file.write(json.dumps(plain(merged(row, scores)), allow_nan=False) + "\n")
            self._file.flush()

    def sync(self) -> None:
        assert self._file is not None, "sync before open"
        with _naming(self._file):
            os.fsync(self._file.fileno())

    def close(self, record: RunRecord | None) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            with _naming(file):  # what a full disk did not take is tried again
                file.close()


@contextmanager
def _naming(file: IO[str]) -> Iterator[None]:
    """Name the file in an `OSError` of writing, which does not by itself."""
    try:
        yield
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
