"""Runs for reports: read from disk, with their records and logged rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from normlab.errors import UserError
from normlab.records.files import read_file
from normlab.records.grouping import grouped
from normlab.records.labels import norm_label
from normlab.records.packed import Key, run_at
from normlab.records.record import Parts, Row, RunRecord, fingerprint, is_probe_metric, parts
from normlab.records.store import (
    CONFIG_FILE,
    METRICS_FILE,
    RECORD_FILE,
    RunStore,
    read_rows,
)

Config = Mapping[str, Any]
"""The config of a run."""
_MOST_ROWS = 100
NOT_RUN, NOT_ENDED = "not run", "not ended"
"""The states of runs without a record."""


@dataclass(frozen=True)
class Run:
    """A run in a report: its place in a table, its record if it has ended, and its logged rows.

    `folder` is the run's folder or, if it is published, its address. If there is no record, `state`
    says why, and `config` is the config of a run that has started.
    """

    key: Key
    record: RunRecord | None = None
    curve: Sequence[Row] = ()
    folder: Path | None = None
    state: str = NOT_RUN
    config: Config | None = None

    @property
    def outcome(self) -> str:
        """How the run ended, or its state if it has no record."""
        return self.state if self.record is None else self.record.outcome.status

    @property
    def settings(self) -> Config:
        """The config, or {} if the run was never started."""
        return (self.config or {}) if self.record is None else self.record.config

    @cached_property
    def parts(self) -> Parts:
        """The hashed part of the config by dotted key."""
        return parts(self.settings) if self.record is None else self.record.parts

    @property
    def name(self) -> str:
        """The last two parts of the run's folder, which are its experiment and its seed."""
        return "" if self.folder is None else "/".join(self.folder.resolve().parts[-2:])

    @property
    def norm(self) -> str:
        return norm_label(self.settings.get("choices", {}))


def unplaced_run(folder: Path | None, record: RunRecord, curve: Sequence[Row] = ()) -> Run:
    """Return a run found on disk, with its seed but no row or point."""
    return Run(Key("", "", record.seed), record, curve, folder)


def by_setting(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Group runs by row and point, keeping their order."""
    return grouped((run.key.row_and_point, run) for run in runs)


def read_runs(places: Sequence[Path], *, ended: bool = False) -> tuple[list[Run], list[str]]:
    """Return all runs in some places with their rows, and a message for each problem.

    A place is a folder of runs, a run's folder, its `record.json`, or an address. With `ended`,
    reads only runs that have ended, without their rows.
    """
    entries: dict[Path, tuple[Path, RunRecord | None]] = {}  # by real path: places may overlap
    problems: dict[str, None] = {}
    for place in places:
        store = RunStore(place.parent if place.name == RECORD_FILE else place)
        stored = [*store.entries(), *((folder, None) for folder in store.open if not ended)]
        entries |= {run[0].parent.resolve() / run[0].name: run for run in stored}
        problems |= dict.fromkeys(message for _, message in store.damaged)
        if not (stored or store.open or store.damaged) and len(places) > 1:
            problems[f"{place} {'has no runs' if place.exists() else 'does not exist'}"] = None
    runs: list[Run] = []
    for folder, record in entries.values():
        rows: list[dict[str, Any]] = []
        try:
            rows = [] if ended else thinned(rows_of_run(folder))
        except (UserError, OSError) as error:  # the run is shown without its rows
            problems[str(error)] = None
        if record is not None:
            runs.append(unplaced_run(folder, record, rows))
            continue
        try:
            config = read_config(folder / CONFIG_FILE)
            key = Key("", "", int(config["seed"]))
            runs.append(Run(key, None, rows, folder, NOT_ENDED, config))
        except (ValueError, OSError) as error:
            problems[str(error)] = None
    return runs, [*problems]


def read_config(path: Path) -> dict[str, Any]:
    """Read the config of a run without a record.

    Raises UserError, which says what to do, if the file is damaged.
    """
    from normlab.config.yaml_files import parse_config  # only a run without a record needs it

    try:
        config = parse_config(read_file(path).decode())
        _ = fingerprint(config), int(config["seed"])
    except Exception as error:  # the file may contain anything
        raise UserError(
            f"{path}: not a run's config ({type(error).__name__}: {error}); restart the run or "
            "omit its folder"
        ) from None
    return config


def thinned(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows to publish: all validations, and at most about a hundred training rows.

    They have `step`, `tokens`, `train/...`, `valid/...` and probe metrics (except per-layer ones),
    rounded to six significant digits. Training rows are kept at a power-of-two interval, so that a
    seed that ended early has the same steps as the other seeds.
    """
    validations = {n for n, row in enumerate(rows) if any(key.startswith("valid/") for key in row)}
    training = [n for n in range(len(rows)) if n not in validations]
    interval = 1
    while len(training) > _MOST_ROWS * interval:
        interval *= 2
    shown = {*training[:1], *training[interval - 1 :: interval], *training[-1:], *validations}
    return [
        {
            name: significant(value)
            for name, value in rows[n].items()
            if name in ("step", "tokens")
            or name.startswith(("train/", "valid/"))
            or (is_probe_metric(name) and name.count("/") == 2)
        }
        for n in sorted(shown)
    ]


def rows_of_run(place: Path) -> list[dict[str, Any]]:
    """Read the rows of a run from its `metrics.jsonl`, or from published curves for an address.

    Returns [] if there are none. Raises UserError with the file and line if a row is damaged.
    """
    if (packed := run_at(place)) is not None:
        pack, key = packed
        return pack.curves.get(key, [])
    path = place / METRICS_FILE
    return read_rows(path) if path.is_file() else []


def significant(value: Any) -> Any:
    """Round a float to six significant digits. Return anything else unchanged."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
