"""TensorBoard: writes a copy of a run as event files to `tensorboard/` in the run folder.

Rows become scalars with the same names, and the config is stored as text. A resumed run starts a
new file, which makes TensorBoard drop the steps after the checkpoint.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from normlab.errors import UserError
from normlab.records.record import RunRecord, Score
from normlab.train.sinks import NO_SCORES, Row, RunInfo, Sink, merged

FOLDER = "tensorboard"


class TensorBoard(Sink):
    """Writes rows as scalars; UserError if TensorBoard is not installed."""

    def __init__(self) -> None:
        if find_spec("tensorboard") is None:
            raise UserError(
                "sink=tensorboard needs the package tensorboard: pip install -c constraints.txt -e "
                "'.[tensorboard]'"
            )
        self._writer: Any = None

    def open(self, run: RunInfo) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.run_dir / FOLDER
        if run.resumed_step == 0:
            for path in folder.glob("events.out.tfevents.*"):
                path.unlink()
        first = run.resumed_step + 1 if run.resumed_step else None
        self._writer = SummaryWriter(str(folder), purge_step=first)
        self._writer.add_text("config", f"    {json.dumps(run.config, indent=1)}", 0)

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        for name, value in merged(row, scores).items():
            if name != "step":
                self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()

    def close(self, record: RunRecord | None) -> None:
        if self._writer is None:
            return
        if record is not None:
            for name, score in record.scores.items():
                self._writer.add_scalar(name, score.value, record.outcome.step)
        self._writer.close()
