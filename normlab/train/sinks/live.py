"""What a run does now, in a small file that others look at: `progress.json` in the run folder.

A sweep reads it wherever its cells run. It is there while the run is, and written once a second.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from normlab.progress import Stage
from normlab.records.record import RunRecord, Score
from normlab.records.store import PROGRESS_FILE
from normlab.train.sinks.base import NO_SCORES, Row, RunInfo, Sink
from normlab.train.sinks.pace import Pace

_EVERY = 1.0  # seconds


class Live(Sink):
    """Keep `progress.json`: phase, done, total, loss, and the seconds of training left."""

    def __init__(self, folder: Path) -> None:
        """Write into the folder of the run."""
        self._path = folder / PROGRESS_FILE
        self._partial = folder / f".{PROGRESS_FILE}.{os.getpid()}.partial"
        self._pace = Pace()
        self._phase, self._written, self._loss = "", 0.0, None

    def open(self, run: RunInfo) -> None:
        """Need nothing of the run."""

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        """Leave rows to the others."""

    def stage(self, stage: Stage) -> None:
        """Write the stage, at most once a second within a phase."""
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
        """Remove the file."""
        self._path.unlink(missing_ok=True)
