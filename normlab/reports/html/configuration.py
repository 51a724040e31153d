"""Decides what of configs, machines and data all runs of a study share, and where they differ."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normlab.records.fingerprint import ABSENT, diff, parts, varying
from normlab.records.record import RunRecord
from normlab.reports.evidence import Evidence

_COUNTED = 4  # runs of one value that are named; of more it is said how many


@dataclass(frozen=True)
class Difference:
    """A setting at a point of the grid and its values of the keys that are not shared."""

    row: str
    at: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Configuration:
    """What all runs share, by dotted key, and the keys that they differ in with their values."""

    shared: Mapping[str, str]
    keys: tuple[str, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Fact:
    """What was recorded under a key, and of which runs, where not of all."""

    key: str
    values: tuple[tuple[str, str], ...]


def configuration(evidence: Iterable[Evidence]) -> Configuration:
    """Compare the configs of all settings, each by its first seed: seeds of one share theirs.

    What is no part of an experiment (seed, device, folders, probes) is left out, as in its
    fingerprint; the names of chosen options stand before the values that they stand for.
    """
    configs: dict[tuple[str, str], Mapping[str, Any]] = {}
    for each in evidence:
        place = (each.planned.row, each.planned.point)
        if each.settings is not None and place not in configs:
            chosen = {f"option: {group}": name for group, name in _choices(each.settings).items()}
            configs[place] = {**chosen, **each.settings}
    varied = varying([parts(config) for config in configs.values()])
    rows = [{key: written(value) for key, value in values.items()} for values in varied]
    first = {key: written(value) for key, value in leaves(next(iter(configs.values()), {})).items()}
    texts = first | next(iter(rows), {})
    keys = sorted(texts, key=lambda key: (not key.startswith("option"), key))
    # Values that differ may read alike: no value, and an empty one.
    apart = tuple(key for key in keys if len({row[key] for row in rows if key in row}) > 1)
    return Configuration(
        shared={key: texts[key] for key in keys if key not in apart},
        keys=apart,
        differences=tuple(
            Difference(*place, tuple(row[key] for key in apart))
            for place, row in zip(configs, rows, strict=True)
        ),
    )


def facts(records: Sequence[RunRecord], part: str) -> list[Fact]:
    """Return what records say in `environment` or `data`, each value once with its runs."""
    nodes = [getattr(record, part) for record in records]
    holders: dict[int, list[int]] = {}  # of a node that records share, as most do
    for place, node in enumerate(nodes):
        holders.setdefault(id(node), []).append(place)
    found: dict[str, dict[str, list[int]]] = {}
    for places in holders.values():
        for key, value in leaves({part: nodes[places[0]]}).items():
            name = key.removeprefix(f"{part}.")
            found.setdefault(name, {}).setdefault(written(value), []).extend(places)
    runs = [record.run_id for record in records]
    return [
        Fact(
            key,
            tuple(
                (value, _of([runs[place] for place in sorted(places)], len(records)))
                for value, places in values.items()
            ),
        )
        for key, values in sorted(found.items())
    ]


def leaves(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a nested config by dotted keys: where it differs from an empty one."""
    return {key: value for key, (_, value) in diff({}, node).items()}


def written(value: object) -> str:
    """Write a value as the command line does."""
    if isinstance(value, str):
        return "" if value == ABSENT else value
    return json.dumps(value, sort_keys=True)


def _choices(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        group: name
        for group, name in config.get("choices", {}).items()
        if name not in (None, "none")
    }


def _of(runs: Sequence[str], total: int) -> str:
    """Say of which runs a value is, "" for all."""
    if len(runs) == total:
        return ""
    if len(runs) > _COUNTED:
        return f"{len(runs)} of {total} runs"
    return ", ".join(runs)


def counted(values: Iterable[str]) -> list[tuple[str, int]]:
    """Return different values with how often each is there, the most frequent first."""
    return sorted(Counter(values).items(), key=lambda pair: (-pair[1], pair[0]))
