"""Runs as reports see them, read from folders and again only where a file has changed."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normlab.records.files import read_file
from normlab.records.fingerprint import fingerprint
from normlab.records.labels import corpus_label, norm_label
from normlab.records.record import RunRecord
from normlab.records.rows import METRICS_FILE
from normlab.records.store import (
    CONFIG_FILE,
    PROGRESS_FILE,
    RECORD_FILE,
    RunStore,
    read_progress,
    read_record,
)
from normlab.reports.curves import CURVES_FILE, rows_of_run, thinned
from normlab.studies import Planned

SILENT = 120.0
"""Seconds without a word from a run after which it no longer counts as running."""
_FILES = (RECORD_FILE, METRICS_FILE, CURVES_FILE, CONFIG_FILE, PROGRESS_FILE)


@dataclass(frozen=True)
class Absent:
    """What a table calls runs without a record: `alone` for a whole row, `among` the others."""

    alone: str
    among: str


NOT_MADE = Absent("no run", "not run")
"""Of a study, which plans its runs."""
NOT_ENDED = Absent("not ended", "not ended")
"""Of a folder of runs: running, or stopped."""


@dataclass(frozen=True)
class Run:
    """A run: its place in a table, its record if it has ended, and the rows that it logged.

    `place` is the address of the record relative to the page, `state` why there is no record,
    `now` what an unfinished run is doing, `folder` where its translations are.
    """

    planned: Planned
    record: RunRecord | None = None
    place: str | None = None
    rows: Sequence[dict[str, Any]] = ()
    state: str = NOT_MADE.alone
    config: Mapping[str, Any] | None = None
    name: str = ""
    now: Mapping[str, Any] | None = None
    folder: Path | None = None

    @property
    def outcome(self) -> str:
        """Return how the run ended, or why it has no record."""
        return self.state if self.record is None else self.record.outcome.status

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the config, empty for a run that was not made."""
        return (self.config or {}) if self.record is None else self.record.config

    @property
    def experiment(self) -> str:
        """Return the fingerprint of the config, the same for all seeds."""
        return fingerprint(self.settings)

    @property
    def norm(self) -> str:
        """Return the label of the norms, such as `bn` or `bn+ln`."""
        return norm_label(self.settings.get("choices", {}))

    @property
    def task(self) -> str:
        """Return the option of the task, and its corpus if it has one."""
        corpus = corpus_label(self.settings)
        return "/".join(filter(None, (self.choice("task"), corpus)))

    def choice(self, group: str) -> str:
        """Return the option of a config group, `none` where there is none."""
        return str(self.settings.get("choices", {}).get(group) or "none")

    def has_probe(self, name: str) -> bool:
        """Tell whether the run was observed by a probe."""
        return name in self.settings.get("observe", {}).get("probe", {})


def found_run(
    record: RunRecord | None,
    rows: Sequence[dict[str, Any]] = (),
    config: Mapping[str, Any] | None = None,
    **more: Any,
) -> Run:
    """Return a run that was found, without a place in a table yet."""
    settings = record.config if record is not None else config or {}
    planned = Planned("", "", int(settings["seed"]), ())
    return Run(planned, record, rows=rows, config=config, state=NOT_ENDED.alone, **more)


Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, size and time of change of each file of a run, None for one that is not there."""


class Watched:
    """The runs at or below some places: folders of runs, run folders, or `record.json` files."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = [place.parent if place.name == RECORD_FILE else place for place in places]
        self.problems: list[str] = []
        self._read: dict[Path, tuple[Stamp, Run | None, list[str]]] = {}
        self._kept: object = None

    def look(self) -> bool:
        """Read what has changed since the last look; tell whether anything has."""
        folders: dict[Path, Path] = {}  # by their real paths: places may overlap
        problems: list[str] = []
        for place in self.places:
            store, top = RunStore(place), place.resolve()
            found = [folder for folder, _ in store.run_folders()]
            folders |= {top / folder.relative_to(place): folder for folder in found}
            problems += [message for _, message in store.damaged]
            if not found and len(self.places) > 1:
                why = "" if place.exists() else ", no such path"
                problems.append(f"{place}: no run there{why}")
        self._read = {folder: self._looked(folder) for folder in folders.values()}
        self.problems = problems + [text for _, _, own in self._read.values() for text in own]
        now = [
            (folder, stamp, run is not None and run.now is None)
            for folder, (stamp, run, _) in self._read.items()
        ]
        changed, self._kept = self._kept != (now, problems), (now, problems)
        return changed

    def runs(self, place: Callable[[Path], str]) -> list[Run]:
        """Return the runs in the order of their folders; `place` gives the address of a record."""
        return [
            replace(run, place=None if run.record is None else place(folder / RECORD_FILE))
            for folder, (_, run, _) in self._read.items()
            if run is not None
        ]

    def _looked(self, folder: Path) -> tuple[Stamp, Run | None, list[str]]:
        stamp = tuple(_stamp_of(f"{folder}/{name}") for name in _FILES)
        known = self._read.get(folder)
        if known is None or known[0] != stamp:
            known = (stamp, *_read_run(folder))
        said, run = stamp[_FILES.index(PROGRESS_FILE)], known[1]
        if run is not None and run.now and said and time.time() - said[2] / 1e9 > SILENT:
            return known[0], replace(run, now=None, state=NOT_ENDED.alone), known[2]
        return known


def _read_run(folder: Path) -> tuple[Run | None, list[str]]:
    """Read a run, without its rows if they are damaged; also return what is wrong."""
    problems: list[str] = []
    rows: list[dict[str, Any]] = []
    name = "/".join(folder.resolve().parts[-2:])  # experiment and seed
    try:
        rows = thinned(rows_of_run(folder))
    except (ValueError, OSError) as error:
        problems.append(str(error))
    try:
        if (folder / RECORD_FILE).is_file():
            record = read_record(folder / RECORD_FILE)
            return found_run(record, rows, name=name, folder=folder), problems
        config = read_config(folder / CONFIG_FILE)
        run = found_run(None, rows, config, name=name, folder=folder)
        now = read_progress(folder)
        return (run if now is None else replace(run, now=now, state="running")), problems
    except (ValueError, OSError) as error:
        return None, list(dict.fromkeys([*problems, str(error)]))


def read_config(path: Path) -> dict[str, Any]:
    """Read the config of a run that has no record; ValueError naming the file and what to do."""
    import yaml  # only a run without a record needs it

    from normlab.config.files import parse_config

    try:
        config = parse_config(read_file(path).decode())
        _ = fingerprint(config), int(config["seed"])
    except (
        *(OSError, yaml.YAMLError, KeyError, TypeError),
        *(AttributeError, ValueError, RecursionError),
    ) as error:
        raise ValueError(
            f"{path}: no config of a run ({type(error).__name__}: {error}); start the run again, "
            "or leave its folder out"
        ) from None
    return config


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
