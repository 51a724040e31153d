"""Runs as reports see them: their rows, and folders read again only where a file has changed.

Of a run's rows its curves are published: the validations and at most about a hundred rows of
training, with what a curve is drawn from (step, tokens, `train/...`, `valid/...` and the metrics of
probes, not those by place) in six significant digits. The rows of training are a power of two
apart, so that a seed that ended early and one that did not share steps.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from normlab.records.files import read_file
from normlab.records.labels import corpus_label, norm_label
from normlab.records.packed import PACK, address_of, run_at
from normlab.records.record import RunRecord, fingerprint
from normlab.records.store import (
    CONFIG_FILE,
    METRICS_FILE,
    PROGRESS_FILE,
    RECORD_FILE,
    RunStore,
    read_progress,
    read_record,
    read_rows,
    record_file,
)
from normlab.studies import Planned

_MOST_ROWS = 100
_ALWAYS = ("step", "tokens")
SILENT = 120.0
"""Seconds without a word from a run after which it no longer counts as running."""
_FILES = (PROGRESS_FILE, RECORD_FILE, METRICS_FILE, CONFIG_FILE)


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

    `place` is the file of the record relative to the page, `state` why there is no record, `now`
    what an unfinished run is doing, `folder` the run's folder or address.
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
    """The runs at or below some places: folders of runs, runs, `record.json` files, addresses."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = [place.parent if place.name == RECORD_FILE else place for place in places]
        self.problems: list[str] = []
        self._read: dict[Path, tuple[Stamp, Run | None, list[str]]] = {}
        self._kept: object = None

    def look(self) -> bool:
        """Read what has changed since the last look; tell whether anything has."""
        folders: dict[Path, Path] = {}  # by their real paths: places may overlap
        real = cache(Path.resolve)
        problems: list[str] = []
        for place in self.places:
            store = RunStore(place)
            found = [folder for folder, _ in store.run_folders()]
            folders |= {real(folder.parent) / folder.name: folder for folder in found}
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
        """Return the runs in the order of their folders; `place` gives the link to a record."""
        return [
            replace(run, place=None if run.record is None else place(record_file(folder)))
            for folder, (_, run, _) in self._read.items()
            if run is not None
        ]

    def _looked(self, folder: Path) -> tuple[Stamp, Run | None, list[str]]:
        address = address_of(folder)
        home, names = (folder, _FILES) if address is None else (address.folder, PACK)
        stamp = tuple(_stamp_of(f"{home}/{name}") for name in names)
        known = self._read.get(folder)
        if known is None or known[0] != stamp:
            known = (stamp, *_read_run(folder))
        said, run = stamp[0], known[1]
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
        if record_file(folder).is_file():
            record = read_record(folder)
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

    from normlab.config.registry import parse_config

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


# The rows of a run --------------------------------------------------------------------------------


def thinned(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what is published of the rows of a run."""
    training = [row for row in rows if not _validates(row)]
    apart = 1
    while len(training) > _MOST_ROWS * apart:
        apart *= 2
    last = len(training) - 1
    number = 0
    kept: list[dict[str, Any]] = []
    for row in rows:
        if not _validates(row):
            number += 1
            if number % apart and number - 1 not in (0, last):
                continue
        kept.append({name: significant(value) for name, value in row.items() if _drawn(name)})
    return kept


def rows_of_run(place: Path) -> list[dict[str, Any]]:
    """Read the rows of a run: its `metrics.jsonl`, or the published ones of an address.

    Nothing for a run that has none; ValueError naming the file that is damaged, and where.
    """
    if (found := run_at(place)) is not None:
        return found[0].curves.get(found[1], [])
    path = place / METRICS_FILE
    return read_rows(path) if path.is_file() else []


def significant(value: Any) -> Any:
    """Round a float to six significant digits; leave everything else."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _validates(row: Mapping[str, Any]) -> bool:
    return any(name.startswith("valid/") for name in row)


def _drawn(name: str) -> bool:
    if name.startswith("stability/"):
        return name.count("/") == 2
    return name in _ALWAYS or name.startswith(("train/", "valid/"))
