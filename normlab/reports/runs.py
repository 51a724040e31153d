"""Runs as reports use them: their place in a table, their records and their logged rows.

The published curves of a run have its validations and at most about a hundred training rows, with
`step`, `tokens`, `train/...`, `valid/...` and probe metrics (except those by layer) to six
significant digits. Training rows are a power of two apart, so that a seed that ended early has the
same steps as one that did not.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normlab.records.files import read_file
from normlab.records.labels import norm_label
from normlab.records.packed import Key, run_at
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
NOT_RUN, NOT_ENDED, RUNNING = "not run", "not ended", "running"
"""Why a run has no record."""
SILENT = 120.0
"""A run that has written nothing for this many seconds no longer counts as running."""


@dataclass(frozen=True)
class Run:
    """A run: its place in a table, its record if it has ended, and its logged rows.

    `folder` is the run's folder or address, `state` says why there is no record, `now` is the
    progress of an unfinished run.
    """

    planned: Planned
    record: RunRecord | None = None
    rows: Sequence[dict[str, Any]] = ()
    folder: Path | None = None
    state: str = NOT_RUN
    config: Mapping[str, Any] | None = None
    now: Mapping[str, Any] | None = None

    @property
    def key(self) -> Key:
        """Return row, point and seed."""
        return Key(self.planned.row, self.planned.point, self.planned.seed)

    @property
    def outcome(self) -> str:
        """Return how the run ended, or why it has no record."""
        return self.state if self.record is None else self.record.outcome.status

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the config; empty for a run that was not made."""
        return (self.config or {}) if self.record is None else self.record.config

    @property
    def name(self) -> str:
        """Return the last two parts of the run's folder: the experiment and the seed."""
        return "" if self.folder is None else "/".join(self.folder.resolve().parts[-2:])

    @property
    def norm(self) -> str:
        """Return the label of the norms, such as `bn` or `bn+ln`."""
        return norm_label(self.settings.get("choices", {}))


def found_run(
    folder: Path | None,
    record: RunRecord | None,
    rows: Sequence[dict[str, Any]] = (),
    config: Mapping[str, Any] | None = None,
) -> Run:
    """Return a run that was found on disk and has no place in a table yet."""
    seed = int((record.config if record is not None else config or {})["seed"])
    return Run(Planned("", "", seed, ()), record, rows, folder, NOT_ENDED, config)


def by_setting(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Group the runs by row and point, keeping their order."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault(run.key[:2], []).append(run)
    return groups


def read_runs(places: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Read the runs at or below some places, unfinished ones too; also return what is unreadable.

    A place is a folder of runs, a run's folder, its `record.json`, or an address.
    """
    folders: dict[Path, Path] = {}  # by real path, since places may overlap
    problems: list[str] = []
    for place in places:
        store = RunStore(place.parent if place.name == RECORD_FILE else place)
        found = [folder for folder, _ in store.run_folders()]
        folders |= {folder.parent.resolve() / folder.name: folder for folder in found}
        problems += [message for _, message in store.damaged]
        if not found and len(places) > 1:
            why = "" if place.exists() else ", no such path"
            problems.append(f"{place}: no run there{why}")
    runs = [_read(folder, problems) for folder in folders.values()]
    return [run for run in runs if run is not None], problems


def _read(folder: Path, problems: list[str]) -> Run | None:
    """Read a run, without its rows if they are damaged; append the damage to `problems`."""
    rows: list[dict[str, Any]] = []
    try:
        rows = thinned(rows_of_run(folder))
    except (ValueError, OSError) as error:
        problems.append(str(error))
    try:
        if record_file(folder).is_file():
            return found_run(folder, read_record(folder), rows)
        run = found_run(folder, None, rows, read_config(folder / CONFIG_FILE))
        now, progress = read_progress(folder), folder / PROGRESS_FILE
        if now is None or time.time() - progress.stat().st_mtime > SILENT:
            return run
        return replace(run, now=now, state=RUNNING)
    except (ValueError, OSError) as error:
        if str(error) not in problems:
            problems.append(str(error))
        return None


def read_config(path: Path) -> dict[str, Any]:
    """Read the config of a run without a record; raises ValueError naming the file and the cure."""
    from normlab.config.registry import parse_config  # only a run without a record needs it

    try:
        config = parse_config(read_file(path).decode())
        _ = fingerprint(config), int(config["seed"])
    except Exception as error:  # a stranger's file may hold anything
        raise ValueError(
            f"{path}: no config of a run ({type(error).__name__}: {error}); start the run again, "
            "or leave its folder out"
        ) from None
    return config


# The rows of a run --------------------------------------------------------------------------------


def thinned(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a run that are published."""
    training = [n for n, row in enumerate(rows) if not _validates(row)]
    apart = 1
    while len(training) > _MOST_ROWS * apart:
        apart *= 2
    kept = {*training[:1], *training[apart - 1 :: apart], *training[-1:]}
    return [
        {name: significant(value) for name, value in row.items() if _drawn(name)}
        for n, row in enumerate(rows)
        if n in kept or _validates(row)
    ]


def rows_of_run(place: Path) -> list[dict[str, Any]]:
    """Read the rows of a run: its `metrics.jsonl`, or the published rows of an address.

    Empty for a run that has none; raises ValueError naming the damaged file, and where.
    """
    if (found := run_at(place)) is not None:
        return found[0].curves.get(found[1], [])
    path = place / METRICS_FILE
    return read_rows(path) if path.is_file() else []


def significant(value: Any) -> Any:
    """Round a float to six significant digits; return anything else unchanged."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _validates(row: Mapping[str, Any]) -> bool:
    return any(name.startswith("valid/") for name in row)


def _drawn(name: str) -> bool:
    if name.startswith("stability/"):
        return name.count("/") == 2
    return name in ("step", "tokens") or name.startswith(("train/", "valid/"))
