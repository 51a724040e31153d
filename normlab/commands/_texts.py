"""The text that a run of translation was tested on, prepared again from its config."""

import json
from collections.abc import Sequence
from pathlib import Path

from normlab.records.record import RunRecord
from normlab.reports.samples import SPLIT, Text, checksums


def parallel_text(
    record: RunRecord, split: str, data_dir: Path | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Return sources and plain references of a split, in its order.

    Raises ValueError for a task that does not translate, for a split that the corpus does not have,
    and where the text is not there or not the one of the record: `data_dir` says where it lies now.
    """
    from normlab.build import build_task
    from normlab.config import from_dict, to_dict
    from normlab.tasks.translation import Translation

    changes = [] if data_dir is None else [f"data_dir={data_dir}"]
    task = build_task(to_dict(from_dict(record.config, changes)))
    if not isinstance(task, Translation):
        raise ValueError(
            f"{record.run_id} is a run of the task {record.choice('task')}, which does not "
            "translate: it has no sources and references"
        )
    try:
        data = task.data
    except ValueError as error:
        raise ValueError(
            f"the text of the test cannot be had: {error} (--data-dir says where)"
        ) from None
    if split not in data.texts:
        raise ValueError(f"no split {split!r}: the corpus has {', '.join(data.texts)}")
    if data.description["checksums"][split] != checksums(record, split):
        raise ValueError(
            f"{record.run_id} was tested on other text than data_dir="
            f"{data_dir or record.config.get('data_dir')} holds now: --data-dir says where it lies"
        )
    text = data.texts[split]
    return text.source, data.plain(text.target)


class TextsAtHand:
    """The texts of tests as `parallel_text` returns them, read once each and without a network."""

    def __init__(self) -> None:
        self._kept: dict[str, Text | str] = {}

    def __call__(self, record: RunRecord) -> Text:
        """Return sources and references; ValueError where they are not on this machine."""
        key = json.dumps(checksums(record, SPLIT), sort_keys=True)
        if key not in self._kept:
            self._kept[key] = self._read(record)
        found = self._kept[key]
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def _read(self, record: RunRecord) -> Text | str:
        from normlab.data.archive import offline

        try:
            with offline():
                return parallel_text(record, SPLIT, None)
        except (ValueError, OSError) as error:
            return str(error)
