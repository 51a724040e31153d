"""A copy of a run for TensorBoard: event files in `tensorboard/` of the run folder.

Rows are scalars by their names. The choices and values of the run are hyperparameters, whose
session group is the fingerprint: the HPARAMS page takes the seeds of an experiment together. Sample
outputs come at the end, as a table. `tensorboard --logdir runs` shows all runs.

A resumed run begins another file, which tells TensorBoard to forget what it knows of steps after
the checkpoint; those are computed and written a second time. A row reaches the file before training
goes on, so none is missing before it.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from normlab.records.labels import batch_label, corpus_label, in_markdown, norm_label
from normlab.records.record import RunRecord, Score
from normlab.train.sinks.base import NO_SCORES, Row, RunInfo, Sink, merged

FOLDER = "tensorboard"
Setting = bool | int | float | str
_NO_SETTINGS = ("choices", "observe", "runs_dir", "data_dir", "task")


class TensorBoard(Sink):
    """Write rows as scalars.

    Raises:
        ValueError: TensorBoard is not installed.
    """

    def __init__(self) -> None:
        if find_spec("tensorboard") is None:
            raise ValueError(
                "sink=tensorboard needs the package tensorboard, which is not installed: "
                "pip install tensorboard, or in a checkout pip install -c constraints.txt -e "
                "'.[tensorboard]'"
            )
        self._writer: Any = None
        self._samples: list[tuple[str, str, str]] = []

    def open(self, run: RunInfo) -> None:
        """Begin a file; a new run removes those of a former one in its place."""
        from torch.utils.tensorboard import SummaryWriter

        folder = run.run_dir / FOLDER
        if run.resumed_step == 0:
            for path in folder.glob("events.out.tfevents.*"):
                path.unlink()
        again = run.resumed_step + 1 if run.resumed_step else None
        self._writer = SummaryWriter(str(folder), purge_step=again)
        self._of_session("start", {"hparams": hyperparameters(run), "group_name": run.fingerprint})

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        """Write one scalar a value."""
        for name, value in merged(row, scores).items():
            if name != "step":
                self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()

    def sample(self, source: str, reference: str, output: str) -> None:
        """Keep the example for the table at the end."""
        self._samples.append((source, reference, output))

    def close(self, record: RunRecord | None) -> None:
        """Write the record's scores and the samples, and close the file."""
        if self._writer is None:
            return
        if record is not None:
            step = record.outcome.step
            for name, score in record.scores.items():
                self._writer.add_scalar(name, score.value, step)
            if self._samples:
                self._writer.add_text("samples", _table(self._samples), step)
        done = record is not None and record.outcome.status == "finished"
        self._of_session("end", {"status": "STATUS_SUCCESS" if done else "STATUS_FAILURE"})
        self._writer.close()

    def _of_session(self, part: str, values: dict[str, Any]) -> None:
        """Write the start or the end of a session of the HPARAMS page."""
        from google.protobuf.json_format import ParseDict
        from tensorboard.compat.proto import summary_pb2
        from tensorboard.plugins.hparams import metadata, plugin_data_pb2

        # Protobuf makes these classes as the modules are loaded.
        data = getattr(plugin_data_pb2, "HParamsPluginData")()  # noqa: B009
        ParseDict({f"session_{part}_info": values}, data)
        tag = {"start": metadata.SESSION_START_INFO_TAG, "end": metadata.SESSION_END_INFO_TAG}[part]
        summary = getattr(summary_pb2, "Summary")()  # noqa: B009
        summary.value.add(tag=tag, metadata=metadata.create_summary_metadata(data))
        self._writer.file_writer.add_summary(summary)
        self._writer.flush()


def hyperparameters(run: RunInfo) -> dict[str, Setting]:
    """Return the chosen options, labels of batch and corpus, and the values of the run's parts."""
    named = {
        **run.choices,
        "norm": norm_label(run.choices),
        "batch": batch_label(run.config),
        "corpus": corpus_label(run.config),
    }
    found = {key: value for key, value in named.items() if value not in (None, "", "-")}
    nodes = {key: value for key, value in run.config.items() if key not in _NO_SETTINGS}
    return dict(_leaves(nodes, "")) | found


def _leaves(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Setting]]:
    """Yield dotted keys and values, lists as text, without options and what is not set."""
    for name, value in node.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None and name != "option":
            yield f"{prefix}{name}", value if isinstance(value, bool | int | float) else str(value)


def _table(samples: list[tuple[str, str, str]]) -> str:
    """Return sources, references and outputs as a table in Markdown."""
    rows = [("source", "reference", "output"), ("---",) * 3]
    rows += [tuple(map(in_markdown, sample)) for sample in samples]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
