"""Decides where runs lie: `<root>/<task>-<norm>-<placement>-<fingerprint>/seed<k>/record.json`.

The path depends on the config alone, never on the time of day, so starting the same command again
finds the same folder.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from normlab.records.atomic import atomic_write
from normlab.records.files import from_json, read_file
from normlab.records.fingerprint import fingerprint
from normlab.records.labels import norm_label
from normlab.records.record import MEND_RUN, RunRecord
from normlab.records.selection import select

RECORD_FILE = "record.json"
RUNS_FILE = "runs.json"  # of a published study, beside the records of its runs
MEND_PUBLISHED = "restore it, or publish its seed again"
CONFIG_FILE = "config.yaml"
PROGRESS_FILE = "progress.json"
"""In the folder of a run that is going on: what it does now."""
_SEED_FOLDER = re.compile(r"seed\d+")


def run_label(config: Mapping[str, Any]) -> str:
    """Name an experiment, the same for all its seeds: `<task>-<norm>-<placement>-<fingerprint>`."""
    choices = config["choices"]
    parts = (choices["task"], norm_label(choices), choices["placement"], fingerprint(config))
    return "-".join(str(part).replace("/", "_") for part in parts)


def read_progress(run_dir: Path) -> dict[str, Any] | None:
    """Return what a run does now: phase, done, total, loss, left; None if it does not say."""
    try:
        found: object = from_json(read_file(run_dir / PROGRESS_FILE))
    except (OSError, ValueError):
        return None
    keys = ("phase", "done", "total", "loss", "left")
    if not isinstance(found, dict) or any(key not in found for key in keys):
        return None
    return {key: found[key] for key in keys}


def run_id(config: Mapping[str, Any]) -> str:
    """Name a run by a single word that trackers accept: the experiment and its seed."""
    return f"{run_label(config)}-seed{config['seed']}"


class RunStore:
    """The runs below one folder.

    Of the last reading of all, `damaged` holds what could not be read, and why, `open` the folders
    of runs that have a config but no record: still going, or killed.
    """

    def __init__(self, root: Path | str) -> None:
        """Refer to a folder, which need not exist yet."""
        self.root = Path(root)
        self.damaged: list[tuple[Path, str]] = []
        self.open: list[Path] = []

    def run_dir(self, config: Mapping[str, Any]) -> Path:
        """Return the folder of a run, which need not exist yet."""
        return self.root / run_label(config) / f"seed{config['seed']}"

    def write(self, record: RunRecord, run_dir: Path) -> Path:
        """Write a record as a whole or not at all; raises `OSError` naming the file."""
        run_dir.mkdir(parents=True, exist_ok=True)
        path = run_dir / RECORD_FILE
        text = record.to_json()
        with atomic_write(path) as file:
            file.write(text)
        return path

    def has(self, run_dir: Path) -> bool:
        """Tell whether a run has left a record."""
        return (run_dir / RECORD_FILE).is_file()

    def read(self, run_dir: Path) -> RunRecord:
        """Read the record of a run; raises `ValueError` naming the file and the damage."""
        return read_record(run_dir / RECORD_FILE)

    def records(self, **where: object) -> list[RunRecord]:
        """Read all records that fit, in the order of their paths.

        `where` maps names to values: an option's group (`norm` is compared with the whole label, so
        `norm="bn"` is batch norm everywhere and `norm="bn+ln"` the split), `status`, `fingerprint`,
        `seed` or a dotted key of the config. Damaged records are left out and listed in `damaged`.
        Raises `ValueError` for a name that no record has.
        """
        return select([record for _, record in self.entries()], where)

    def entries(self) -> list[tuple[Path, RunRecord]]:
        """Read all records with their run folders, in the order of their paths.

        Damaged records are left out and listed in `damaged`, runs without one in `open`.
        """
        self.damaged = []
        self.open = []
        found: list[tuple[Path, RunRecord]] = []
        with without_collection():
            for folder, ended in self.run_folders():
                if not ended:
                    self.open.append(folder)
                    continue
                try:
                    found.append((folder, read_record(folder / RECORD_FILE)))
                except ValueError as error:
                    # Evidence: without it a seed would be missing, and nothing would say so.
                    published = (folder / "../../.." / RUNS_FILE).is_file()
                    said = str(error).replace(MEND_RUN, MEND_PUBLISHED) if published else str(error)
                    self.damaged.append((folder / RECORD_FILE, said))
        return found

    def run_folders(self) -> list[tuple[Path, bool]]:
        """Find the folders of runs, by their paths, and whether each has a record, in one pass.

        Below a run's folder `seed<k>` nothing is looked for: all that a run has lies in it.
        """
        found: list[tuple[tuple[str, ...], bool]] = []
        folders: list[tuple[str, ...]] = [()]
        while folders:
            parts = folders.pop()
            place = os.path.join(self.root, *parts)
            try:
                with os.scandir(place) as entries:
                    names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            except (FileNotFoundError, NotADirectoryError):  # no such root, or removed meanwhile
                continue
            except OSError as error:
                self.damaged.append((Path(place), f"{place}: cannot be read: {error.strerror}"))
                continue
            if RECORD_FILE in names or CONFIG_FILE in names:
                found.append((parts, RECORD_FILE in names))
            for name in (name for name, is_folder in names.items() if is_folder):
                inner = os.path.join(place, name)
                if _SEED_FOLDER.fullmatch(name) and (ended := _ended(inner)) is not None:
                    found.append(((*parts, name), ended))
                else:
                    folders.append((*parts, name))
        return [(self.root.joinpath(*parts), ended) for parts, ended in sorted(found)]


def _ended(folder: str) -> bool | None:
    """Tell whether a run has left a record; None for a folder of no run."""
    if os.path.exists(f"{folder}/{RECORD_FILE}"):
        return True
    return False if os.path.exists(f"{folder}/{CONFIG_FILE}") else None


@contextlib.contextmanager
def without_collection() -> Generator[None]:
    """Leave out Python's search for cycles, which doubles the time that many records take.

    They have none. It is made up for at the end, so let go of the records within.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_record(path: Path, *, mend: str = MEND_RUN) -> RunRecord:
    """Read a `record.json`; raises `ValueError` naming the file, what is wrong and what to do.

    `mend` is what to do about one that is damaged.
    """
    try:
        content = read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{path}: no such record; the run has not ended yet, or this is not a run folder"
        ) from None
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read: {error.strerror}; make it readable, or remove it"
        ) from None
    return RunRecord.from_json(content, origin=str(path), mend=mend)
