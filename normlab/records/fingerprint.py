"""Decides when two runs are the same experiment: what of a config is hashed, and how.

Left out are the seed, the `device`, the `observe` node (probes, sinks, intervals), the `choices`
(which each node names as its `option`) and, at any depth, the folders
`data_dir`, `runs_dir` and `run_dir`: where files lie is no part of an experiment. What the data
*is* stands in the record's checksums, which aggregation compares.
"""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

from normlab.records.canonical import plain

# At the top only: a corpus has a seed too.
_NOT_HASHED = frozenset({"observe", "seed", "choices", "device"})
_PLACES = frozenset({"data_dir", "runs_dir", "run_dir"})
_NOT_AT_TOP = _NOT_HASHED | _PLACES
_LENGTH = 10
ABSENT = "(absent)"

Parts = Mapping[str, bytes]
"""What is hashed of a config: its keys in their order, and their values, packed."""


def fingerprint(config: Mapping[str, Any]) -> str:
    """Hash what makes the experiment: 10 hex digits of SHA-256 over the canonical JSON."""
    text = ",".join(_written(key, part) for key, part in parts(config).items())
    return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()[:_LENGTH]


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Map each dotted key at which two experiments differ to its values in `a` and in `b`.

    A key that only one of them has is `ABSENT` in the other. Empty exactly when the fingerprints
    agree.
    """
    left, right = varying([parts(a), parts(b)])
    return {key: (value, right[key]) for key, value in left.items()}


def varying(experiments: Sequence[Parts]) -> list[dict[str, Any]]:
    """Return of each experiment its values of the dotted keys at which not all are alike.

    A key that it has not is `ABSENT`. For two they are the keys of `diff`; any number take one
    pass.
    """
    keys = varying_keys(experiments)
    return [{key: _leaf(each, top, key) for key, top in keys} for each in experiments]


def varying_keys(experiments: Sequence[Parts]) -> list[tuple[str, str]]:
    """Return the dotted keys at which not all experiments are alike, each with its part's key."""
    found: list[tuple[str, str]] = []
    for top in {key for each in experiments for key in each}:
        # Of ten thousand experiments a part has a few forms.
        forms = list({each.get(top): each for each in experiments}.values())
        if len(forms) > 1:
            names = {name for each in forms if top in each for name in _leaves(top, each[top])}
            found += [
                (name, top)
                for name in names
                if len({_hashable(_leaf(each, top, name)) for each in forms}) > 1
            ]
    return sorted(found)


def _leaf(experiment: Parts, top: str, key: str) -> Any:
    return _leaves(top, experiment[top]).get(key, ABSENT) if top in experiment else ABSENT


def without(experiment: Parts, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return what an experiment is apart from some dotted keys and what is below them.

    Equal for two experiments exactly when `diff` finds no other key.
    """
    rests = (_rest(key, part, keys) for key, part in experiment.items())
    return tuple(rest for rest in rests if rest)


@lru_cache(maxsize=4096)
def _rest(key: str, packed: bytes, left_out: tuple[str, ...]) -> str:
    below = tuple(f"{name}." for name in left_out)
    leaves = [
        _canonical(leaf)
        for leaf in sorted(_leaves(key, packed).items(), key=lambda leaf: leaf[0])
        if leaf[0] not in left_out and not leaf[0].startswith(below)
    ]
    return ",".join(leaves)


def _hashable(value: Any) -> tuple[str, Any]:
    # To Python True is 1, and not to an experiment.
    name = value.__class__.__name__
    return name, _canonical(value) if name in ("dict", "list") else value


def parts(config: Mapping[str, Any]) -> Parts:
    """Return what is hashed of a config, each part by its key and packed.

    Equal bytes are equal values. Ten thousand runs share most of their parts, each of which the
    functions of this file look at once.
    """
    kept = {key: config[key] for key in sorted(config.keys() - _NOT_AT_TOP)}
    try:
        found = {key: _packed(value) for key, value in kept.items()}
        for key, part in found.items():
            _written(key, part)
    except (TypeError, ValueError):  # a value that is not plain, such as a number of numpy's
        return {key: _packed(value) for key, value in plain(kept).items()}
    return found


def _packed(value: Any) -> bytes:
    return marshal.dumps(value, 2)  # the last version whose bytes depend on the value alone


@lru_cache(maxsize=4096)
def _written(key: str, packed: bytes) -> str:
    return f"{_canonical(key)}:{_canonical(_normal(packed))}"


@lru_cache(maxsize=4096)
def _leaves(key: str, packed: bytes) -> Mapping[str, Any]:
    """Return the values of a part by their dotted keys; a node without keys is a value."""
    return MappingProxyType(dict(_flat(key, _normal(packed))))


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, item in cast("dict[str, Any]", value).items():
            yield from _flat(f"{key}.{name}", item)
    else:
        yield key, value


def _normal(packed: bytes) -> Any:
    return _without_places(plain(marshal.loads(packed)))


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        node = cast("dict[str, Any]", value)
        return {key: _without_places(item) for key, item in node.items() if key not in _PLACES}
    if isinstance(value, list):
        return [_without_places(item) for item in cast("list[Any]", value)]
    # `lr=1` and `lr=1.0` are one experiment, whichever of them a YAML parser makes of it.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
