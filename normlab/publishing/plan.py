"""Checks that a study's file still describes its published runs.

A planned override is compared with the config of a record if it is part of the experiment, that is
of the record's fingerprint. Composing a config takes 0.2 s, so only the keys that the plan sets are
compared. Runs at points that the study no longer has are not in the plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from normlab.config.experiments import SEVERAL
from normlab.config.overrides import typed
from normlab.config.registry import OPTION, norm_name, paths
from normlab.config.schema import FOLDERS, NOT_HASHED, PATHS, key_of
from normlab.errors import UserError
from normlab.records.grouping import grouped
from normlab.records.packed import pack
from normlab.records.pairs import ABSENT
from normlab.records.point import place_text
from normlab.records.record import Parts, RunRecord, parts
from normlab.studies.load import load_study

_NOT_COMPARED = {*NOT_HASHED, *PATHS, *SEVERAL}
"""Keys that are not part of an experiment, and groups from which a run takes several options."""
_SETTLED = "auto"  # replaced by another value when a run is composed or starts
_RULES, _NORM = "sites", "norm"


def check_plan(folder: Path) -> None:
    """Raise UserError if published runs of a study have other values than their study plans.

    The error has a line per key and pair of values, with the file, the first row and both values.
    """
    study, scale = load_study(folder.parent.name), folder.name
    plan = {run.row_and_point: _planned(run.overrides) for run in study.planned(scale, seeds=[0])}
    experiments = {
        (key.row_and_point, record.fingerprint): record
        for key, record in pack(folder).records.items()
        if record is not None and key.row_and_point in plan
    }
    places = grouped(
        (difference, place_text(*place))
        for (place, _), record in experiments.items()
        for difference in _differences(plan[place], record)
    )
    if not places:
        return
    file, advice = paths("study")[study.name], f"or remove {folder} and publish again"
    lines = [
        f"{file}: at scale={scale}, {key}={planned} is planned for {_first(rows)}, whose published "
        f"runs have {recorded}; restore the file, {advice}"
        for (key, planned, recorded), rows in places.items()
    ]
    raise UserError("\n".join(lines))


def _first(rows: Sequence[str]) -> str:
    """Return the first row with its point, and the number of other ones."""
    first, *others = dict.fromkeys(rows)
    return f"`{first}` (and {len(others)} more)" if others else f"`{first}`"


def _differences(plan: Parts, record: RunRecord) -> Iterator[tuple[str, str, str]]:
    """Yield the keys in which a record differs from its plan, with planned and recorded value."""
    # An option is at the key of its group: `norm` has the option, and `norm.eps` a value.
    recorded = {**parts(record.config.get("choices", {})), **record.parts}
    for key, planned in plan.items():
        value = recorded.get(key, _default(key)).strip('"')
        if value == _SETTLED:
            value = str(record.environment.get(key, value))
        if planned.strip('"') not in (value, _SETTLED):
            yield key, planned.strip('"'), value


def _default(key: str) -> str:
    """Return the value of a key that a record lacks: of a newer key, its default."""
    facts = key_of(key)
    return parts({key: facts.default})[key] if facts.newer else ABSENT


def _planned(overrides: Sequence[str]) -> Parts:
    """Return the planned values of an experiment by dotted key, and the options by group."""
    values: dict[str, Any] = {}
    for word, value in typed(overrides).items():
        group, _, node = word.lstrip("+").partition("@")
        key = node or group
        if key.partition(".")[0] in _NOT_COMPARED or key.rpartition(".")[2] in FOLDERS:
            continue
        if key == _RULES and isinstance(value, Mapping):
            values[key] = _rules(cast("Mapping[str, Any]", value))
        else:
            values[key] = norm_name(str(value)) if group == _NORM else value
    return parts(values)


def _rules(sites: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules of `sites` as in a run's config, where `option` is the name of the norm."""
    rules: dict[str, Any] = {}
    for pattern, value in sites.items():
        settings = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}
        norm = settings.pop(_NORM, None if settings else value)
        rules[pattern] = {OPTION: norm_name(str(norm)), **settings}
    return rules
