"""Runs for reports: read from disk, named as rows of a table, and arranged in a grid.

For runs without a plan, a row is an experiment with its seeds joined. If numeric settings or
placements are crossed with norms, as in a sweep over norms and batch sizes, they become the axes
of a grid, and a row is compared with the baseline at the same grid point. If the runs have several
tasks, the task is the grid axis.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from normlab.errors import UserError
from normlab.records.files import read_file
from normlab.records.labels import norm_label
from normlab.records.packed import Key, run_at
from normlab.records.record import MAIN_SCORES, RunRecord, fingerprint, is_probe_metric
from normlab.records.store import (
    CONFIG_FILE,
    METRICS_FILE,
    RECORD_FILE,
    RunStore,
    read_rows,
)
from normlab.reports.comparison import grouped, told_apart
from normlab.reports.recipes import (
    Name,
    Settings,
    follows,
    grid_of,
    label,
    names,
    recipes,
    values_of,
)
from normlab.studies.study import Study

_MOST_ROWS = 100
NOT_RUN, NOT_ENDED = "not run", "not ended"
"""The states of runs without a record."""
USUAL = "ln"
"""The baseline norm, unless the user names another row."""
_TESTS = tuple(f"test/{name}" for name in MAIN_SCORES if name not in ("loss", "perplexity"))


@dataclass(frozen=True)
class Run:
    """A run: its place in a table, its record if it has ended, and its logged rows.

    `folder` is the run's folder or address, `state` the reason if there is no record.
    """

    key: Key
    record: RunRecord | None = None
    rows: Sequence[dict[str, Any]] = ()
    folder: Path | None = None
    state: str = NOT_RUN
    config: Settings | None = None

    @property
    def outcome(self) -> str:
        """Return how the run ended, or its state if it has no record."""
        return self.state if self.record is None else self.record.outcome.status

    @property
    def settings(self) -> Settings:
        """Return the config; empty if the run was never started."""
        return (self.config or {}) if self.record is None else self.record.config

    @property
    def name(self) -> str:
        """Return the last two parts of the run's folder: the experiment and the seed."""
        return "" if self.folder is None else "/".join(self.folder.resolve().parts[-2:])

    @property
    def norm(self) -> str:
        return norm_label(self.settings.get("choices", {}))


def found_run(folder: Path | None, record: RunRecord, rows: Sequence[dict[str, Any]] = ()) -> Run:
    """Return a run found on disk, with its seed but no row or point."""
    return Run(Key("", "", record.seed), record, rows, folder)


def by_setting(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Group runs by row and point, in their given order."""
    return grouped((run.key[:2], run) for run in runs)


def read_runs(places: Sequence[Path], *, ended: bool = False) -> tuple[list[Run], list[str]]:
    """Read all runs at or below some places with their rows; also return error messages.

    A place is a folder of runs, a run's folder, its `record.json`, or an address. With `ended`,
    only runs that have ended are read, and without their rows.
    """
    entries: dict[Path, tuple[Path, RunRecord | None]] = {}  # by real path: places may overlap
    problems: dict[str, None] = {}
    for place in places:
        store = RunStore(place.parent if place.name == RECORD_FILE else place)
        found = [*store.entries(), *((folder, None) for folder in store.open if not ended)]
        entries |= {run[0].parent.resolve() / run[0].name: run for run in found}
        problems |= dict.fromkeys(message for _, message in store.damaged)
        if not (found or store.open or store.damaged) and len(places) > 1:
            problems[f"{place}: no runs found{'' if place.exists() else ', no such path'}"] = None
    runs: list[Run] = []
    for folder, record in entries.values():
        rows: list[dict[str, Any]] = []
        try:
            rows = [] if ended else thinned(rows_of_run(folder))
        except (UserError, OSError) as error:  # show the run without its rows
            problems[str(error)] = None
        if record is not None:
            runs.append(found_run(folder, record, rows))
            continue
        try:
            config = read_config(folder / CONFIG_FILE)
            key = Key("", "", int(config["seed"]))
            runs.append(Run(key, None, rows, folder, NOT_ENDED, config))
        except (ValueError, OSError) as error:
            problems[str(error)] = None
    return runs, [*problems]


def read_config(path: Path) -> dict[str, Any]:
    """Read the config of a run without a record; UserError with file and fix if it is damaged."""
    from normlab.config.registry import parse_config  # only a run without a record needs it

    try:
        config = parse_config(read_file(path).decode())
        _ = fingerprint(config), int(config["seed"])
    except Exception as error:  # the file may contain anything
        raise UserError(
            f"{path}: not a run's config ({type(error).__name__}: {error}); restart the run or "
            "leave its folder out"
        ) from None
    return config


def thinned(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows to publish: all validations, and a hundred training rows at most.

    They have `step`, `tokens`, `train/...`, `valid/...` and probe metrics (except per-layer ones),
    rounded to six significant digits. Training rows are kept at a power-of-two interval, so that a
    seed that ended early has the same steps as the other seeds.
    """
    validations = {n for n, row in enumerate(rows) if any(key.startswith("valid/") for key in row)}
    training = [n for n in range(len(rows)) if n not in validations]
    apart = 1
    while len(training) > _MOST_ROWS * apart:
        apart *= 2
    kept = {*training[:1], *training[apart - 1 :: apart], *training[-1:], *validations}
    return [
        {
            name: significant(value)
            for name, value in rows[n].items()
            if name in ("step", "tokens")
            or name.startswith(("train/", "valid/"))
            or (is_probe_metric(name) and name.count("/") == 2)
        }
        for n in sorted(kept)
    ]


def rows_of_run(place: Path) -> list[dict[str, Any]]:
    """Read the rows of a run from its `metrics.jsonl`, or the published rows of an address.

    Empty if there are none; raises UserError with the file and line if damaged.
    """
    if (found := run_at(place)) is not None:
        return found[0].curves.get(found[1], [])
    path = place / METRICS_FILE
    return read_rows(path) if path.is_file() else []


def significant(value: Any) -> Any:
    """Round a float to six significant digits; return anything else unchanged."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


class Place(NamedTuple):
    """An experiment's row in a table, and its value on each axis."""

    row: Name
    at: dict[str, Any]


class Arranged(NamedTuple):
    """Runs arranged as the runs of a study; `scale` is "" if no run chose one."""

    study: Study
    scale: str
    runs: list[Run]


def by_recipe(
    found: Sequence[Run], *, baseline: str | None = None, scores: Sequence[str] = ()
) -> list[Arranged]:
    """Arrange runs as tables, one for each recipe, with `arranged`; see there for the errors.

    `baseline` may be a row of only some tables.
    """
    members = [*grouped((fingerprint(run.settings), run) for run in found).values()]
    _columns(found, scores)  # refuses a score that no run of any table has
    tables: list[Arranged] = []
    refused: list[UserError] = []
    groups = recipes([own[0].settings for own in members])
    for said, indices in groups:
        own = [run for n in indices for run in members[n]]
        columns = scores or _columns(own, ())
        try:
            table = _arranged(own, columns, baseline, said)
        except UserError as error:
            refused.append(error)
            table = _arranged(own, columns, None, said)
        tables.append(table)
    if len(refused) == len(tables):
        raise refused[0]
    return tables


def arranged(
    found: Sequence[Run],
    *,
    baseline: str | None = None,
    scores: Sequence[str] = (),
    recipe: str = "",
) -> Arranged:
    """Arrange runs as rows: the baseline first, then the others by the first score, best first.

    `baseline` names the row that the others are compared with, `scores` the columns, and `recipe`
    what the runs share and others do not. Raises UserError, listing the choices, for a baseline
    that is not a row, or a score that no run has.
    """
    return _arranged(found, _columns(found, scores), baseline, recipe)


def _arranged(
    found: Sequence[Run], columns: Sequence[str], baseline: str | None, recipe: str
) -> Arranged:
    """Arrange runs, none of which need to have all the columns."""
    members = [*grouped((fingerprint(run.settings), run) for run in found).values()]
    places = _places([own[0].settings for own in members], baseline)
    settings = [*zip(places, members, strict=True)]
    merits = {place.row: _merit(own, columns[0]) for place, own in reversed(settings)}
    first = _baseline(settings, baseline)
    rows = sorted(
        dict.fromkeys(p.row for p in places), key=lambda row: (row != first, -merits[row])
    )
    settings.sort(key=lambda each: (*each[0].at.values(), rows.index(each[0].row)))
    grid: dict[str, dict[str, tuple[str, ...]]] = {}
    runs: list[Run] = []
    for (row, at), own in settings:
        words = {axis: f"{v:.12g}" if isinstance(v, float) else str(v) for axis, v in at.items()}
        for axis, value in words.items():
            grid.setdefault(axis, {})[value] = ()
        point = " ".join(map("=".join, words.items()))
        by_seed = sorted(own, key=lambda run: run.key.seed)
        runs += [replace(run, key=Key(row.text, point, run.key.seed)) for run in by_seed]
    named = {row.text: row.keys for row in rows}
    study = Study("runs", recipe, "", "Runs", rows=named, columns=tuple(columns), grid=grid)
    scales = {run.settings.get("choices", {}).get("scale") for run in found} - {None, "none"}
    return Arranged(study, ", ".join(sorted(scales)), runs)


def _baseline(settings: Sequence[tuple[Place, Sequence[Run]]], asked: str | None) -> Name | None:
    """Return the row that others are compared with: the one that is named, or the first norm's.

    Of several rows with the norm, it is the one with most seeds, then the one that differs from the
    other rows in the fewest settings. None if no row has the usual norm.
    """
    named = dict.fromkeys(place.row for place, _ in settings)
    wanted = asked or USUAL
    if exact := next((row for row in named if row.text == wanted), None):
        return exact
    configs = [own[0].settings for _, own in settings]
    apart = [*told_apart(configs).values()]

    def suits(n: int) -> tuple[int, int]:
        own = settings[n][1]
        ended = sum(run.record is not None and run.record.finished for run in own)
        return ended, sum(values.count(values[n]) for values in apart)

    of_norm = [n for n, (_, own) in enumerate(settings) if own[0].norm == wanted]
    if of_norm:
        return settings[max(of_norm, key=suits)][0].row
    if asked is not None:
        raise UserError(f"--baseline {asked}: no such row{_said(asked, [r.text for r in named])}")
    return None


def _merit(runs: Sequence[Run], column: str) -> float:
    """Return a score's mean over finished seeds, negated if lower is better."""
    ended = [run.record for run in runs if run.record is not None and run.record.finished]
    scores = [record.scores[column] for record in ended if column in record.scores]
    values = [score.value * (1 if score.higher_is_better else -1) for score in scores]
    return -math.inf if not values or math.isnan(mean := fmean(values)) else mean


def _columns(runs: Sequence[Run], scores: Sequence[str]) -> list[str]:
    """Return the scores to show: the requested ones, or the main test scores and the loss."""
    records = [run.record for run in runs if run.record is not None]
    known = dict.fromkeys(name for record in records for name in record.scores)
    for name in scores:
        if name not in known:
            raise UserError(f"--columns {name}: no run has this score{_said(name, sorted(known))}")
    return list(scores) or [*main_tests(known), "valid/loss"]


def main_tests(names: Iterable[str]) -> list[str]:
    """Return the main test scores among the names of scores, or else the first test score."""
    tests = [name for name in names if name.startswith("test/") and name.count("/") == 1]
    return [name for name in _TESTS if name in tests] or tests[:1]


def _said(name: str, known: Iterable[str]) -> str:
    """Return the last part of the error for an unknown name: a suggestion, or the known names."""
    if near := get_close_matches(name, known := [*known], n=1):
        return f". Did you mean {near[0]}?"
    return f"; available: {'; '.join(known) or 'none'}"


def _places(configs: Sequence[Settings], baseline: str | None) -> list[Place]:
    """Return the row and grid point of each experiment; no axes unless a row has all points."""
    tasks = [label(config).task for config in configs]
    if len({*tasks}) > 1:
        found: dict[int, Place] = {}
        for task in dict.fromkeys(tasks):
            own = [n for n, of in enumerate(tasks) if of == task]
            rows = names([configs[n] for n in own])
            found |= {n: Place(row, {"task": task}) for n, row in zip(own, rows, strict=True)}
        return [found[n] for n in range(len(configs))]
    plain = [Place(row, {}) for row in names(configs)]
    every, values = grid_of(configs), values_of(configs)
    axes = [key for key in every if not follows(key, every, values)]
    if not axes or baseline in {place.row.text for place in plain}:
        return plain
    points = [{key: values[key][n] for key in axes} for n in range(len(configs))]
    return [Place(*each) for each in zip(names(configs, every), points, strict=True)]
