"""The sink that keeps a running run's progress in a file, for displays of several runs."""

import json
import os
import time
from pathlib import Path

from normlab.progress import Stage
from normlab.records.record import RunRecord
from normlab.records.store import PROGRESS_FILE
from normlab.training.pace import Pace
from normlab.training.sinks import Sink


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
