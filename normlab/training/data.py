"""Checks whether the data of a config are still the data that a run was trained on.

A run is identified by the checksums of its data, wherever they are stored. A record has the
checksums of the prepared data (`data.checksums`) and of the files that they were read from
(`data.files`). If the files are equal, so are the data, which can be checked at once and without
torch. Only if files differ are the data prepared and compared.

The vocabulary is kept in the run's folder. A model is therefore never used with a different
vocabulary, and needs no data to translate or continue a text.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.config.instantiation import builder_of, instantiate
from normlab.config.registry import OPTION, TARGET, node_settings
from normlab.config.schema import leaves
from normlab.data.cache import cache_key, known_checksum
from normlab.data.source import DataSource
from normlab.errors import UserError
from normlab.records.files import atomic_write, read_file
from normlab.records.record import RunRecord

if TYPE_CHECKING:
    from normlab.tasks.base import Task

VOCABULARY = "vocabulary"  # the subfolder of a run's folder
OTHER_VOCABULARY = (
    "was trained with a different vocabulary from the one that its text gives now: install the "
    "version of tokenizers in its record, or train it again in another runs_dir"
)
_MOST_NAMED = 100  # if there are more files, a single checksum is recorded for all of them


def file_checksums(config: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the SHA-256 of each file that the data of a config are read from, by name.

    Return None if a source cannot list its files, so that the data must be read to compare them.
    Raises UserError if a file is missing.
    """
    source = next(_sources(config), None)
    if source is None or (files := source.files()) is None:
        return None
    checksums = {name: known_checksum(path) for name, path in sorted(files.items())}
    if len(checksums) > _MOST_NAMED:
        return {f"{len(checksums):,} files": cache_key(checksums)}
    return checksums


def _sources(config: Mapping[str, Any]) -> Iterator[DataSource]:
    """Yield the sources from which the task of a config reads its data."""
    settings = node_settings(config["task"], "task")
    for name, node in config["task"].items():
        content = settings.get(name)
        if isinstance(node, Mapping) and (OPTION in node or TARGET in node):
            content = node_settings(node, f"task.{name}")
        if isinstance(content, Mapping) and TARGET in content:
            built = builder_of(node, f"task.{name}", object, settings=content)()
            if isinstance(built, DataSource):
                yield built


def differing(before: object, now: object) -> list[str]:
    """Return the keys, such as `train.de`, whose checksums differ."""
    first, second = dict(leaves({"": before})), dict(leaves({"": now}))
    return [
        key.removeprefix(".") or "the data"
        for key in dict.fromkeys([*first, *second])
        if first.get(key) != second.get(key)
    ]


def changes(record: RunRecord, config: Mapping[str, Any]) -> list[str]:
    """Return the files or the parts of the data that have changed since a record was made.

    Raises UserError if the data are missing or cannot be read.
    """
    before, now = record.data.get("files") or {}, file_checksums(config)
    if now == before:
        return []
    from normlab.tasks.base import Task  # imports torch

    task = instantiate(config["task"], "task", Task)
    parts = differing(record.data.get("checksums"), task.checksums())
    return differing(before, now) if parts and before and now else parts


def are_at_hand_and_changed(record: RunRecord, config: Mapping[str, Any]) -> bool:
    """Return whether the data have changed since a record was made; False if they are missing."""
    with suppress(UserError, OSError):
        return bool(changes(record, config))
    return False


def changed_text(changed: Sequence[str], data_dir: object) -> str:
    """Return the part of an error that says which data have changed and where they were read."""
    shown = ", ".join(changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")
    place = "" if data_dir is None else f" (data_dir={data_dir}: {Path(str(data_dir)).resolve()})"
    return f"was trained on different data: {shown} differ{'s' * (len(changed) == 1)}{place}"


# The vocabulary in a run's folder ---------------------------------------------------------------


def keep_vocabulary(folder: Path, vocabulary: Mapping[str, str]) -> None:
    """Write the files of a vocabulary (see `Task.vocabulary`) into a run's folder."""
    for name, text in vocabulary.items():
        (folder / VOCABULARY).mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / VOCABULARY / name) as file:
            file.write(text)


def read_vocabulary(folder: Path) -> dict[str, str]:
    """Return the files of a run's vocabulary by name, or raise UserError if one cannot be read."""
    try:
        paths = sorted((folder / VOCABULARY).glob("*.json"))
        return {path.name: read_file(path).decode() for path in paths}
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{folder / VOCABULARY}: cannot be read ({error}); train the run again"
        ) from None


def check_data(folder: Path, record: RunRecord, task: "Task", config: Mapping[str, Any]) -> None:
    """Raise UserError if a task's data differ from the data that a run was trained on."""
    if changed := differing(record.data.get("checksums"), task.checksums()):
        raise UserError(
            f"{folder} {changed_text(changed, config['data_dir'])}: set data_dir=FOLDER to the "
            "data of the run"
        )
