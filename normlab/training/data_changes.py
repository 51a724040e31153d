"""Finds out whether a run's data have changed since the run was trained.

A record has the checksums of the prepared data (`data.checksums`) and of the files that the data
were read from (`data.files`), wherever these files are. If the files are unchanged, so are the
data. Only if files differ, the data are prepared, and the checksums of their parts are compared.
Data that come with this machine's software (Python's documentation) are compared by their label,
which has its version.

Nothing here imports torch unless data must be prepared.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.config.instantiation import instantiate, part_of
from normlab.config.schema import leaves
from normlab.data.cache import checksums_of
from normlab.data.source import DataSource
from normlab.errors import UserError
from normlab.records.record import RunRecord

if TYPE_CHECKING:
    from normlab.tasks.base import Task

OTHER_VOCABULARY = (
    "was trained with a different vocabulary than the one now learned from its text; install the "
    "version of tokenizers in its record, or train the run again in another runs_dir"
)
"""The problem of a run's folder whose vocabulary no longer follows from the data."""


def changed_data(record: RunRecord, config: Mapping[str, Any]) -> list[str]:
    """Return the files or the parts of the data that have changed since a record was made.

    Raises UserError if the data are missing or cannot be read.
    """
    source = part_of(config["task"], "task", DataSource)
    label, label_before = source and source.label_here(), record.data.get("label")
    if label is not None and label != label_before:
        return [f"{label_before} (here: {label})"]
    before, now = record.data.get("files") or {}, source and checksums_of(source.files())
    if now == before:
        return []
    from normlab.tasks.base import Task  # imports torch

    task = instantiate(config["task"], "task", Task)
    parts = differing_checksums(record.data.get("checksums"), task.checksums())
    return differing_checksums(before, now) if parts and before and now else parts


def data_at_hand_changed(record: RunRecord, config: Mapping[str, Any]) -> bool:
    """Return whether the data have changed since a record was made.

    Missing data count as unchanged.
    """
    with suppress(UserError, OSError):
        return bool(changed_data(record, config))
    return False


def differing_checksums(before: object, now: object) -> list[str]:
    """Return the keys whose checksums differ, such as `train.de`."""
    first, second = (
        dict(leaves(each)) if isinstance(each, Mapping) else {"the data": each}
        for each in (before, now)
    )
    return [key for key in dict.fromkeys([*first, *second]) if first.get(key) != second.get(key)]


def changed_data_text(changed: Sequence[str], data_dir: object) -> str:
    """Return the part of an error that lists the changed data and where they are."""
    shown = ", ".join(changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")
    place = "" if data_dir is None else f" (data_dir={data_dir}: {Path(str(data_dir)).resolve()})"
    return f"was trained on different data: {shown} differ{'s' * (len(changed) == 1)}{place}"


def check_data(folder: Path, record: RunRecord, task: "Task", config: Mapping[str, Any]) -> None:
    """Raise UserError if a task's data differ from the data that a run was trained on."""
    if changed := differing_checksums(record.data.get("checksums"), task.checksums()):
        cure = "set data_dir=FOLDER to the data of the run"
        if not record.data.get("files"):
            cure = "omit settings that change the data (task.KEY=value), or train the run again"
        raise UserError(f"{folder} {changed_data_text(changed, config['data_dir'])}: {cure}")
