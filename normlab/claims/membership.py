"""Which records belong to a study at a scale: those whose config is one that it plans.

A run belongs to the study that it names in `observe.study`, and to every study it is published
with: studies share the runs that they have in common. The scale is found by the values that it
sets, since a folder may hold the runs of several.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from normlab.claims.node import Where
from normlab.records.labels import norm_label
from normlab.records.pairs import spelled
from normlab.records.record import RunRecord
from normlab.studies import Study, rate_name

_ELSEWHERE = ("seed", "device", "data_dir", "runs_dir", "sink", "probe", "observe")
_NO_NORM = norm_label({})
_GROUPS = ("norm", "sites")  # `clip_norm` is no group
_SETTLED = "auto"  # a value that a run replaces by what it stands for
NOTHING = object()


class Plan:
    """The runs of a study at a scale; `varied` are the keys of the config in which they differ."""

    def __init__(self, study: Study, scale: str) -> None:
        """Read the plan; raises `ValueError` for a scale that there is not."""
        self.study, self.scale = study, study.scale(scale)
        planned = study.planned(scale, seeds=[0])
        self._runs = [_values(run.overrides) for run in planned]
        shared = set.intersection(*(set(run.items()) for run in self._runs))
        self._shared = dict(shared)  # by all runs, so asked first
        self._own = [dict(run.items() - shared) for run in self._runs]
        self._names = [rate_name(run.row, run.point) for run in planned]
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
        named = zip(self._names, self._own, strict=True)
        return {name for name, own in named if any(_has(record, own) for record in records)}

    def may_choose(self, where: Where) -> set[str]:
        """Name the rows, at their points, of which a selection may choose runs.

        A key that a row leaves to the config's default does not tell it apart.
        """
        return {
            name
            for name, run in zip(self._names, self._runs, strict=True)
            if all(_may_be(run, key, value) for key, value in where.items())
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Name the rows at their points."""
        return tuple(self._names)

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
    found = {_key(each): each.partition("=")[2] for each in overrides}
    return {key: text for key, text in found.items() if key.split(".")[0] not in _ELSEWHERE}


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


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def value_of(config: Mapping[str, Any], key: str) -> object:
    """Return the option of a group, or else the value of a dotted key of the config.

    `NOTHING` stands for a key that there is not.
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
