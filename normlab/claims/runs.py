"""The evidence that a ledger is made from: records by their study, timings, outcomes of checks.

A run belongs to the study that it names in `observe.study`, and to every study it is published
with: studies share the runs that they have in common. The scale is found by the values that it
sets, since a folder may hold the runs of several.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from normlab.claims.evidence import Evidence, Timings, read_timings, report_paths
from normlab.records.labels import norm_label
from normlab.records.packed import address_of
from normlab.records.pairs import spelled
from normlab.records.record import RunRecord
from normlab.records.store import RunStore, Selection
from normlab.studies import Study, load_study, rate_name

Where = Mapping[str, object]
"""What runs are chosen by: options of groups and dotted keys of the config, with their values."""
_ELSEWHERE = ("seed", "device", "data_dir", "runs_dir", "sink", "probe", "observe")
_NO_NORM = norm_label({})
_GROUPS = ("norm", "sites")  # `clip_grad` is no group
_SETTLED = "auto"  # a value that a run replaces by what it stands for
NOTHING = object()


class Plan:
    """The runs of a study at a scale; `varied` are the keys of the config in which they differ."""

    def __init__(self, study: Study, scale: str) -> None:
        """Read the plan; raises `ValueError` for an unknown scale."""
        self.study, self.scale = study, study.scale(scale)
        planned = study.planned(scale, seeds=[0])
        self._runs = [_values(run.overrides) for run in planned]
        shared = set.intersection(*(set(run.items()) for run in self._runs))
        self._shared = dict(shared)  # by all runs, so asked first
        self._own = [dict(run.items() - shared) for run in self._runs]
        self.names = [rate_name(run.row, run.point) for run in planned]  # of rows at their points
        keys = sorted({key for run in self._runs for key in run})
        varied = [key for key in keys if len({run.get(key) for run in self._runs}) > 1]
        self.varied = tuple(dict.fromkeys(name for key in varied for name in spelled(key)))

    def holds(self, record: RunRecord, published: Collection[str] = ()) -> bool:
        """Tell whether a record, published with some studies, is of a run that is planned here."""
        observe = record.config.get("observe") or {}
        if self.study.name not in (observe.get("study"), *published):
            return False
        return _has(record, self._shared) and any(_has(record, own) for own in self._own)

    def names_of(self, records: Collection[RunRecord]) -> set[str]:
        """Name the rows, at their points, of which runs of this plan are there."""
        named = zip(self.names, self._own, strict=True)
        return {name for name, own in named if any(_has(record, own) for record in records)}

    def may_choose(self, where: Where) -> set[str]:
        """Name the rows, at their points, of which a selection may choose runs.

        A key that a row leaves to the config's default does not tell it apart.
        """
        return {
            name
            for name, run in zip(self.names, self._runs, strict=True)
            if all(_may_be(run, key, value) for key, value in where.items())
        }

    def values(self, key: str) -> tuple[str, ...]:
        """Return what a key of the grid takes at this scale; nothing for another key."""
        found: dict[str, None] = {}
        for axis, points in self.scale.grid.items():
            for overrides in points.values():
                values = _values(overrides)
                if key in values:
                    found[written(values[key])] = None
                elif axis == key:
                    return ()
        return tuple(found)


def _values(overrides: Sequence[str]) -> dict[str, str]:
    """Return what the last override of each key says, of the keys that make the experiment."""
    pairs = (each.lstrip("+~").partition("=") for each in overrides)
    return {key: text for key, _, text in pairs if key.split(".")[0] not in _ELSEWHERE}


def _has(record: RunRecord, values: Mapping[str, str]) -> bool:
    """Tell whether the config of a record has values, as overrides write them."""
    return all(_same(text, value_of(record.config, key)) for key, text in values.items())


def _may_be(run: Mapping[str, str], key: str, value: object) -> bool:
    """Tell whether a planned run may have a value: False where its overrides say another."""
    if key == "norm":
        if key not in run:
            return True
        chosen = [name for name in run if "@" in name or name in _GROUPS]
        label = norm_label({name.rpartition("@")[2]: run[name] for name in chosen})
        return label in (str(value), _NO_NORM)
    return key not in run or _same(run[key], value) or written(run[key]) == written(value)


def value_of(config: Mapping[str, Any], key: str) -> object:
    """Return the option of a group, or else the value of a dotted key of the config.

    `NOTHING` is the value of a missing key.
    """
    choices = config.get("choices", {})
    for name in (key, key.rpartition("@")[2]):
        if name in choices:
            return choices[name]
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            return NOTHING
        node = node[part]
    return node


def written(value: object) -> str:
    """Write a value of a config, or the text of an override, in one way: `3e-3` is `0.003`."""
    if value is NOTHING or value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return repr(float(str(value)))
    except ValueError:
        return str(value)


def _same(text: str, value: object) -> bool:
    """Tell whether the text of an override stands for a value of a config."""
    if value is NOTHING:
        return False
    if text == _SETTLED:
        return True
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == float(value)
        except ValueError:
            return False
    return _parsed(text) == value or text == str(value)


@cache
def _parsed(text: str) -> object:
    return yaml.safe_load(text)


_Copy = tuple[str, str]  # a run id, and what made this copy of it
_Place = tuple[str, str]  # a study and a scale


@dataclass(frozen=True)
class Runs:
    """Records and where each lies, what was timed, and what checks found.

    A run that two states of the code made is there as two copies. `published` names the studies and
    scales that a copy is published with: it is packed in `<study>/<scale>`. With pilots alone it
    belongs to no other scale of the study. `damaged` says what could not be read. `configs` is the
    folder of the studies.
    """

    configs: Path
    records: Sequence[RunRecord] = ()
    folders: Mapping[_Copy, str] = field(default_factory=dict)
    published: Mapping[_Copy, Collection[_Place]] = field(default_factory=dict)
    damaged: Sequence[str] = ()
    timings: Sequence[Timings] = ()
    computed: Mapping[str, Sequence[Evidence]] = field(default_factory=dict)
    _plans: dict[_Place, Plan] = field(default_factory=dict, init=False)
    _selections: dict[_Place, Selection] = field(default_factory=dict, init=False)
    _seeds: dict[_Place, frozenset[int]] = field(default_factory=dict, init=False)

    @classmethod
    def read(
        cls,
        places: Iterable[Path],
        *,
        root: Path,
        configs: Path,
        computed: Mapping[str, Sequence[Evidence]] | None = None,
        made_for: Mapping[Path, Collection[_Place]] | None = None,
    ) -> "Runs":
        """Read all records below some folders; their own are named relative to `root` if there.

        `made_for` names the studies and scales that a folder's run is made for, as if published;
        of the places of such folders only these are read.
        A run found twice with the same scores, such as the committed copy of one, counts once.
        """
        first: dict[str, RunRecord] = {}
        found: dict[_Copy, RunRecord] = {}
        twice: list[RunRecord] = []
        folders: dict[_Copy, str] = {}
        published: dict[_Copy, set[_Place]] = {}
        damaged: list[str] = []
        timings: list[Timings] = []
        own = {folder.parents[1] for folder in made_for or ()}
        for place in places:
            store, top = RunStore(place), _relative(place, root)
            for report in report_paths(place):
                try:
                    timings.append(read_timings(place / report, named=(top / report).as_posix()))
                except ValueError as error:
                    damaged.append(str(error))
            for folder, record in store.entries():
                if place in own and folder not in (made_for or ()):
                    continue
                copy = _copy(record)
                known = first.setdefault(record.run_id, record)
                if known.scores != record.scores:
                    twice.append(record)
                    damaged.append(
                        f"{folder}: the same run as in {folders[_copy(known)]}, with other "
                        "scores, so neither counts; remove one of the two"
                    )
                else:
                    found.setdefault(copy, record)
                within = Path(os.path.normpath(top / os.path.relpath(folder, place)))
                folders.setdefault(copy, within.as_posix())
                studies = published.setdefault(copy, set())
                studies.update((made_for or {}).get(folder, ()))
                if (address := address_of(folder)) is not None:
                    studies.add((address.folder.parent.name, address.folder.name))
            damaged += [message for _, message in store.damaged]
        records = [*found.values(), *twice]
        return cls(configs, records, folders, published, damaged, timings, computed or {})

    def folder(self, record: RunRecord) -> str:
        """Return where a record lies, or its run id where it lies nowhere."""
        return self.folders.get(_copy(record), record.run_id)

    def plan(self, study: str, scale: str) -> Plan:
        """Return what a study plans at a scale; raises `ValueError` for an unknown one."""
        if (study, scale) not in self._plans:
            self._plans[study, scale] = Plan(load_study(study, self.configs), scale)
        return self._plans[study, scale]

    def of_study(self, study: str, scale: str) -> Selection:
        """Return the records of a study at a scale, to choose from."""
        if (study, scale) not in self._selections:
            plan = self.plan(study, scale)
            own = [record for record in self.records if self._belongs(record, plan)]
            first: dict[str, RunRecord] = {}  # of all copies of a run that have the same scores
            kept = [run for run in own if _is_first(run, first.setdefault(run.run_id, run))]
            self._selections[study, scale] = Selection(kept)
        return self._selections[study, scale]

    def seeds_made(self, study: str, scale: str) -> frozenset[int]:
        """Return the seeds of which a run of a study was made, for whatever study."""
        if (study, scale) not in self._seeds:
            plan = self.plan(study, scale)
            held = (record.seed for record in self.records if plan.holds(record, (study,)))
            self._seeds[study, scale] = frozenset(held)
        return self._seeds[study, scale]

    def _belongs(self, record: RunRecord, plan: Plan) -> bool:
        places = self.published.get(_copy(record), ())
        own = plan.study.scales
        scales = {scale for name, scale in places if name == plan.study.name and scale in own}
        if scales and not plan.scale.pilot and all(own[scale].pilot for scale in scales):
            return False
        return plan.holds(record, {name for name, _ in places})


def _copy(record: RunRecord) -> _Copy:
    return record.run_id, repr((record.made_by, record.environment.get("commit")))


def _is_first(record: RunRecord, known: RunRecord) -> bool:
    return known is record or known.scores != record.scores


def _relative(place: Path, root: Path) -> Path:
    resolved = place.resolve()
    inside = resolved.is_relative_to(root.resolve())
    return resolved.relative_to(root.resolve()) if inside else place
