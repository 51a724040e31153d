"""Runs read from folders, and read again only where a file of theirs has changed."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normlab.records.hypotheses import HYPOTHESES_FILE, PACKED
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
from normlab.reports.figures.runs import Run, read_config
from normlab.reports.runs import Found

SILENT = 120.0
"""Seconds after which a run that says nothing more is no longer taken to go on."""
_FILES = (RECORD_FILE, METRICS_FILE, CURVES_FILE, CONFIG_FILE, PROGRESS_FILE)
_TRANSLATIONS = (HYPOTHESES_FILE, HYPOTHESES_FILE + PACKED)  # written before a run has its record

Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, size and time of change of each file of a run, None for one that is not there."""


@dataclass(frozen=True)
class _Read:
    stamp: Stamp
    run: Run | None
    problems: tuple[str, ...]
    now: Mapping[str, Any] | None


class Watched:
    """The runs at or below some places: folders of runs, run folders, or `record.json` files."""

    def __init__(self, places: Sequence[Path], *, leads_out: bool = True) -> None:
        """Refer to places; without `leads_out` no file is read by a link out of the places."""
        self.places = [place.parent if place.name == RECORD_FILE else place for place in places]
        self.leads_out = leads_out
        self.problems: list[str] = []
        self._read: dict[Path, _Read] = {}
        self._kept: object = None

    def look(self) -> bool:
        """Read what has changed since the last look; tell whether anything has."""
        folders: dict[Path, Path] = {}  # by where they really are: places may overlap
        problems: list[str] = []
        for place in self.places:
            store = RunStore(place)
            top = place.resolve()
            found = [folder for folder, _ in store.run_folders()]
            folders |= {top / folder.relative_to(place): folder for folder in found}
            problems += [message for _, message in store.damaged]
            if not found and len(self.places) > 1:
                problems.append(
                    f"{place}: no run there" + ("" if place.exists() else ", no such path")
                )
        self._read = {folder: self._looked(folder) for folder in folders.values()}
        self.problems = problems + [text for each in self._read.values() for text in each.problems]
        now = [(folder, each.stamp, each.now is None) for folder, each in self._read.items()]
        changed, self._kept = self._kept != (now, problems), (now, problems)
        return changed

    def runs(self, place: Callable[[Path], str]) -> list[Found]:
        """Return the runs in the order of their folders; `place` gives the address of a record."""
        return [
            Found(
                _name(folder),
                each.run,
                None if each.run.record is None else place(folder / RECORD_FILE),
                each.now,
                folder,
            )
            for folder, each in self._read.items()
            if each.run is not None
        ]

    def _looked(self, folder: Path) -> _Read:
        known, stamp = self._read.get(folder), _stamp(folder)
        if known is None or known.stamp != stamp:
            run, problems = self._run(folder, stamp)
            now = read_progress(folder) if run is not None and run.record is None else None
            known = _Read(stamp, run, tuple(problems), now)
        said = stamp[_FILES.index(PROGRESS_FILE)]
        if known.now is not None and said is not None and time.time() - said[2] / 1e9 > SILENT:
            return replace(known, now=None)
        return known

    def _run(self, folder: Path, stamp: Stamp) -> tuple[Run | None, list[str]]:
        """Read a run; without its rows where they are damaged, and not where nothing else is."""
        there = dict(zip(_FILES, stamp, strict=True))
        problems: list[str] = []
        rows: list[dict[str, Any]] = []
        try:
            self._check_within(folder)
            rows = thinned(rows_of_run(folder))
        except (ValueError, OSError) as error:
            problems.append(str(error))
        try:
            self._check_within(folder)
            if there[RECORD_FILE] is not None:
                return Run.of(read_record(folder / RECORD_FILE), rows), problems
            return Run(read_config(folder / CONFIG_FILE), rows, None), problems
        except (ValueError, OSError) as error:
            return None, list(dict.fromkeys([*problems, str(error)]))

    def _check_within(self, folder: Path) -> None:
        """Raise ValueError for a file of a run that lies elsewhere."""
        tops = [place.resolve() for place in self.places]
        for name in (*_FILES, *_TRANSLATIONS):
            path = folder / name
            real = path.resolve()
            if not self.leads_out and not any(real.is_relative_to(top) for top in tops):
                raise ValueError(f"{path}: leads out of the folder by a link; remove it")


def _stamp(folder: Path) -> Stamp:
    return tuple(_stamp_of(f"{folder}/{name}") for name in _FILES)


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _name(folder: Path) -> str:
    """Return the last two names of a run's folder, experiment and seed."""
    return "/".join(folder.resolve().parts[-2:])
