"""The evidence for the ledger: the runs of each study and scale, check findings, and timings.

Check findings are in `results/computed.json`, and timings in `results/bench/norms*.json`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import yaml
from msgspec import Struct

from normlab.claims.where import Where
from normlab.errors import UserError
from normlab.records.grouping import grouped
from normlab.records.labels import norm_label
from normlab.records.packed import Key, address_of
from normlab.records.pairs import spelled
from normlab.records.record import RunRecord
from normlab.records.store import RunStore, lookup_in_config, written
from normlab.studies import published_trials
from normlab.studies.load import load_study, unchosen
from normlab.studies.study import Study
from normlab.studies.study_part import SmallestPart, smallest_part
from normlab.studies.study_runs import composed

BENCH = "bench"
StudyScale = tuple[str, str]
"""A study and one of its scales."""
COMPUTED = "computed.json"
"""The file with the check findings, in the folder of published runs."""
_FORMAT = "normlab.computed/1"
_NOISE = 1e-9  # smaller float64 values are rounding errors, which differ between machines
_NOT_COMPARED = ("seed", "observe", "probe")
_NO_NORM = norm_label({})
_SETTLED = "auto"  # resolved when the run starts
_T = TypeVar("_T")


class CheckFinding(Struct, frozen=True):
    """A check finding: a statement, what was found, and whether that supports the claim.

    Its `name` is unique within the check. Claims and articles refer to it by this name. In its
    `numbers`, whole numbers are exact counts.
    """

    question: str
    finding: str
    standing: Literal["supports", "contradicts"]
    numbers: Mapping[str, int | float] = {}
    name: str = ""

    @property
    def sentence(self) -> str:
        """The statement, its truth, and what was found: `ln has one mode: true (one mode)`."""
        truth = "true" if self.standing == "supports" else "not true"
        return f"{self.question}: {truth} ({self.finding})"


class _Computed(Struct):
    format: Literal["normlab.computed/1"]
    checks: dict[str, list[CheckFinding]]


def to_json(checks: Mapping[str, Sequence[CheckFinding]]) -> str:
    """Return findings, keyed by check, as JSON.

    Numbers that are not whole are rounded, so that the bytes are the same on every machine.
    """
    content = msgspec.to_builtins({"format": _FORMAT, "checks": checks})
    for piece in (piece for pieces in content["checks"].values() for piece in pieces):
        piece["numbers"] = {key: _rounded(value) for key, value in piece["numbers"].items()}
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"


def _rounded(number: int | float) -> int | float:
    if isinstance(number, int):
        return number
    return 0.0 if abs(number) < _NOISE else float(f"{number:.4g}")


def read_computed(path: Path) -> dict[str, list[CheckFinding]]:
    """Return the findings in a file, keyed by check, or {} if there is no file.

    Raises UserError if the file is damaged.
    """
    return _read(path, _Computed, "normlab claims --write").checks if path.is_file() else {}


class TimedCandidate(Struct, frozen=True):
    """A timed candidate: its times, and the ratios of its time to the first candidate's.

    The times are keyed by statistic. There is one ratio for each round.
    """

    name: str
    milliseconds: dict[str, float]
    ratios_to_first: tuple[float, ...]


class Timings(Struct, frozen=True):
    """A report of `python scripts/bench norms`, whose `path` is set when it is read."""

    format: Literal["normlab.bench.norms/1"]
    environment: dict[str, Any]
    groups: dict[str, tuple[TimedCandidate, ...]]
    path: str = ""


def _read(path: Path, kind: type[_T], again: str) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise UserError(f"{path} is damaged ({error}); recreate it with {again}") from None


class PlannedRuns:
    """The planned runs of a study at a scale.

    `names` are the rows with their grid points, such as `bn batching=random`. `varied` lists the
    config keys in which the runs differ.
    """

    def __init__(self, study: Study, scale: str) -> None:
        """Read the plan, or raise `UserError` for an unknown scale."""
        self.study, self.scale_name, self.scale = study, scale, study.scale(scale)
        planned = study.planned(scale, seeds=[0])
        self._planned, self._configs = planned, dict[str, Mapping[str, Any]]()
        self._places = [(run.row, run.point) for run in planned]
        self.names = [Key(run.row, run.point, 0).name for run in planned]
        self._runs = [_values(run.overrides) for run in planned]
        keys = sorted({key for run in self._runs for key in run})
        varied = [key for key in keys if len({run.get(key) for run in self._runs}) > 1]
        self.varied = tuple(dict.fromkeys(name for key in varied for name in spelled(key)))

    def may_choose(self, where: Where) -> set[str]:
        """Return the rows and grid points whose runs may match a selection.

        A key that a row leaves at its default may have any value.
        """
        runs = zip(self.names, self._runs, strict=True)
        return {name for name, run in runs if all(_may_be(run, *pair) for pair in where.items())}

    def _matching(self, where: Where) -> set[str]:
        """Return the rows and grid points whose runs match a selection.

        Composing a config takes 0.2 s, so only runs are composed that leave a key at its default
        that other runs set.
        """
        set_by_some = {key for run in self._runs for key in run}
        runs = dict(zip(self.names, self._runs, strict=True))
        return {
            name
            for name in self.may_choose(where)
            if all(
                written(lookup_in_config(self._config(name), key)) == written(value)
                for key, value in where.items()
                if (key in set_by_some and key not in runs[name])
                or (key == "norm" and "sites" in runs[name])
            )
        }

    def _config(self, name: str) -> Mapping[str, Any]:
        """Return the config of a row at a grid point."""
        if name not in self._configs:
            self._configs[name] = composed(self._planned[self.names.index(name)])
        return self._configs[name]

    def smallest_part(self, sides: Sequence[Where]) -> SmallestPart:
        """Return the smallest part of the study with all runs that match one of the sides."""
        places = zip(self._places, self.names, strict=True)
        chosen = set[str]().union(*map(self._matching, sides))
        matching = [place for place, name in places if name in chosen]
        return smallest_part(self.study, self.scale_name, matching)

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of a key in this scale's grid, or () if the grid does not vary it."""
        points = [p for axis in self.scale.grid.values() for p in map(_values, axis.values())]
        return tuple(dict.fromkeys(written(point[key]) for point in points if key in point))


def _values(overrides: Sequence[str]) -> dict[str, str]:
    """Return the value of each overridden key, except keys that do not change the experiment."""
    pairs = (each.lstrip("+~").partition("=") for each in overrides)
    return {key: text for key, _, text in pairs if key.split(".")[0] not in _NOT_COMPARED}


def _may_be(run: Mapping[str, str], key: str, value: object) -> bool:
    """Return whether a planned run may have a value: no override of the key sets another one."""
    if key not in run:
        return True
    if key == "norm":
        chosen = [name for name in run if "@" in name or name == "norm"]
        label = norm_label({name.rpartition("@")[2]: run[name] for name in chosen})
        if "sites" in run:  # the label ends with them, such as ln+final_none
            return str(value).startswith(f"{label}+")
        return label in (str(value), _NO_NORM)
    text = run[key]
    return text in (_SETTLED, str(value)) or written(yaml.safe_load(text)) == written(value)


class RecordAt(NamedTuple):
    """A run's record, and its folder or address."""

    record: RunRecord
    folder: str

    @property
    def name(self) -> str:
        """The name of a packed run, from its row and point, or "" for any other run."""
        address = address_of(self.folder, packed=False)
        return address.name if address else ""


@dataclass
class EvidenceStore:
    """All evidence: runs, timings and check findings.

    `records` has the runs of each study and scale, keyed by run id. A packed run belongs to the
    study of its folder. `untrainable` has the rows, with their points, for which tuning found no
    rate that trains. `damaged` has a message for each unreadable run, and `timings` has the
    reports, keyed by file name without `.json`. `configs` is the folder with the studies.
    """

    configs: Path
    records: dict[StudyScale, dict[str, RecordAt]] = field(default_factory=dict)
    untrainable: dict[StudyScale, set[str]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    timings: dict[str, Timings] = field(default_factory=dict)
    computed: Mapping[str, Sequence[CheckFinding]] = field(default_factory=dict)
    _plans: dict[StudyScale, PlannedRuns] = field(default_factory=dict)

    def read(self, results: Path) -> None:
        """Read the packed runs and the timings in `results`. Paths are relative to the checkout."""
        store, root = RunStore(results), self.configs.parent
        for path in sorted((results / BENCH).glob("norms*.json")):
            report = _read(path, Timings, f"python scripts/bench norms --json {path}")
            self.timings[path.stem] = msgspec.structs.replace(report, path=_relative(path, root))
        for path in sorted(results.glob("*/tuning.json")):
            for scale, trials in published_trials.read(path).items():
                self.untrainable[path.parent.name, scale] = published_trials.untrainable(trials)
        for folder, record in store.entries():
            if (address := address_of(folder)) is not None:
                study_scale = address.folder.parent.name, address.folder.name
                self.add(study_scale, RecordAt(record, _relative(folder, root)))
        self.damaged += [message for _, message in store.damaged]

    def add(self, study_scale: StudyScale, record_at: RecordAt) -> None:
        """Add a run to a study and scale, unless it has already been added."""
        self.records.setdefault(study_scale, {}).setdefault(record_at.record.run_id, record_at)

    def untuned(self, study: str, scale: str) -> set[str]:
        """Return the rows, with their points, whose rate a study has yet to choose at a scale."""
        load = partial(load_study, configs=self.configs)
        untuned = unchosen(self.plan(study, scale).study, scale, load)
        return {*untuned} - self.untrainable.get((study, scale), set())

    def finished(self, study: str, scale: str) -> Mapping[str, list[RunRecord]]:
        """Return the finished published runs, keyed by the name of their row and point."""
        runs = self.records.get((study, scale), {}).values()
        return grouped((run.name, run.record) for run in runs if run.name and run.record.finished)

    def plan(self, study: str, scale: str) -> PlannedRuns:
        """Return a study's plan at a scale. Raise UserError for an unknown study or scale."""
        if (study, scale) not in self._plans:
            self._plans[study, scale] = PlannedRuns(load_study(study, self.configs), scale)
        return self._plans[study, scale]


def _relative(path: Path, root: Path) -> str:
    resolved, top = path.resolve(), root.resolve()
    return (resolved.relative_to(top) if resolved.is_relative_to(top) else path).as_posix()
