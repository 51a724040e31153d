"""TensorBoard: writes a copy of a run as event files to `tensorboard/` in the run folder.

Rows become scalars with the same names, and the config is stored as text. A resumed run starts a
new file, which makes TensorBoard drop the steps after the checkpoint.

The hyperparameters and the headline scores are in a separate run, `tensorboard/scores`.
TensorBoard's HPARAMS tab has a column for each metric of a run with hyperparameters, so columns for
the curves would hide the scores. The tab lists hyperparameters that differ between runs first.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from normlab.errors import UserError
from normlab.records.labels import norm_label
from normlab.records.record import MAIN_SCORES, RunRecord, Score, parts
from normlab.training.sinks import NO_SCORES, Row, RunInfo, Sink, merged

FOLDER, SCORES = "tensorboard", "scores"


class TensorBoard(Sink):
    """Writes rows as scalars. Raises UserError if TensorBoard is not installed."""

    def __init__(self) -> None:
        if find_spec("tensorboard") is None:
            raise UserError(
                "sink=tensorboard needs the package tensorboard: pip install -c constraints.txt -e "
                "'.[tensorboard]'"
            )
        self._writer: Any = None
        self._config: Mapping[str, Any] = {}

    def open(self, run: RunInfo) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.run_dir / FOLDER
        if run.resumed_step == 0:
            for path in folder.rglob("events.out.tfevents.*"):
                path.unlink()
        self._config = run.config
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
            headlines = {n: score for n, score in record.scores.items() if _is_headline(n)}
            for name in record.scores.keys() - headlines.keys():
                self._writer.add_scalar(name, record.scores[name].value, record.outcome.step)
            self._compare(headlines, record.outcome.step)
        self._writer.close()

    def _compare(self, scores: Mapping[str, Score], step: int) -> None:
        """Write the scores and the hyperparameters for the HPARAMS tab."""
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        with SummaryWriter(f"{self._writer.log_dir}/{SCORES}") as writer:
            _, begin, end = hparams(hyperparameters(self._config), {})
            for summary in (begin, end):
                writer._get_file_writer().add_summary(summary)
            for name, score in scores.items():
                writer.add_scalar(name, score.value, step)


def hyperparameters(config: Mapping[str, Any]) -> dict[str, str | int | float]:
    """Return the experiment's keys that have a single value, its options by group, and the seed."""
    options = {key.removesuffix(".option"): json.loads(part) for key, part in parts(config).items()}
    options |= {"norm": norm_label(config["choices"]), "seed": config["seed"]}
    return {key: value for key, value in options.items() if isinstance(value, str | int | float)}


def _is_headline(name: str) -> bool:
    first, _, score = name.partition("/")
    return score in MAIN_SCORES and first.startswith(("test", "valid"))
