"""How a run comes along: the time left, its loss in a dozen characters, and `progress.json`.

A sweep reads `progress.json` in the run folder, wherever its cells run. The file is there while the
run is, and is written once a second.
"""

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from normlab.progress import TRAINING, Stage
from normlab.records.record import RunRecord, Score
from normlab.records.store import PROGRESS_FILE
from normlab.train.sinks.base import NO_SCORES, Row, RunInfo, Sink

_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 12
_EVERY = 1.0  # seconds


class Pace:
    """The time left, by all steps since the first that was seen, validations included.

    What comes before the first step (compiling, the start of W&B) does not come again.
    """

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._step: int = 0
        self._total: int | None = None

    def see(self, stage: Stage) -> None:
        """Learn of a stage; those that are no training step change nothing."""
        if stage.phase == TRAINING:
            self._first = self._first or (stage.done, time.monotonic())
            self._step, self._total = stage.done, stage.total

    @property
    def left(self) -> float | None:
        """Return the seconds of training that are left; None where nobody can know."""
        if self._first is None or self._total is None or self._step <= self._first[0]:
            return None
        elapsed = time.monotonic() - self._first[1]
        return elapsed / (self._step - self._first[0]) * (self._total - self._step)


class Sparkline:
    """The loss of all steps so far, as bars of equal numbers of steps; the last may have fewer."""

    def __init__(self, columns: int = _COLUMNS) -> None:
        self._means: list[float] = []
        self._columns, self._each, self._sum, self._count = columns, 1, 0.0, 0

    def add(self, loss: float) -> None:
        """Take the loss of one step."""
        if not math.isfinite(loss):
            return
        self._sum, self._count = self._sum + loss, self._count + 1
        if self._count == self._each:
            self._means.append(self._sum / self._count)
            self._sum, self._count = 0.0, 0
        if len(self._means) == 2 * self._columns:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [(a + b) / 2 for a, b in pairs]
            self._each *= 2

    def __str__(self) -> str:
        """Draw it from the lowest to the highest loss that was seen."""
        means = self._means
        if len(means) > self._columns:
            whole = means if len(means) % 2 == 0 else means[:-1]
            pairs = zip(whole[::2], whole[1::2], strict=True)
            means = [(a + b) / 2 for a, b in pairs] + means[len(whole) :]
        if len(means) < 2:
            return ""
        low, high = min(means), max(means)
        scale = (len(_BARS) - 1) / (high - low or 1)
        return "".join(_BARS[round((mean - low) * scale)] for mean in means)


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
