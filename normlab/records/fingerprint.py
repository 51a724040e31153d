"""Decides when two runs are the same experiment: what of a config is hashed, and how.

Left out are the seed, the `device`, the `observe` node (probes, sinks, intervals), the `choices`
(names of the options, which the values themselves replace) and, at any depth, the folders
`data_dir` and `runs_dir`: where files lie is no part of an experiment. What the data *is* stands
in the record's checksums, which aggregation compares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from normlab.records.canonical import plain

# At the top only: a corpus has a seed too.
_NOT_HASHED = frozenset({"observe", "seed", "choices", "device"})
_PLACES = frozenset({"data_dir", "runs_dir"})
_LENGTH = 10
ABSENT = "(absent)"


def fingerprint(config: Mapping[str, Any]) -> str:
    """Hash what makes the experiment: 10 hex digits of SHA-256 over the canonical JSON."""
    text = _canonical(_significant(config))
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Map each dotted key at which two experiments differ to its values in `a` and in `b`.

    A key that only one of them has is `ABSENT` in the other. Empty exactly when the fingerprints
    agree.
    """
    left, right = dict(_leaves(_significant(a))), dict(_leaves(_significant(b)))
    pairs = {
        key: (left.get(key, ABSENT), right.get(key, ABSENT)) for key in sorted({*left, *right})
    }
    return {key: pair for key, pair in pairs.items() if _canonical(pair[0]) != _canonical(pair[1])}


def _significant(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in _NOT_HASHED}
    return _normal(plain(kept))


def _normal(value: object) -> Any:
    if isinstance(value, dict):
        node = cast("dict[str, object]", value)
        return {key: _normal(item) for key, item in node.items() if key not in _PLACES}
    if isinstance(value, list):
        return [_normal(item) for item in cast("list[object]", value)]
    # `lr=1` and `lr=1.0` are one experiment, whichever of them a YAML parser makes of it.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _leaves(node: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _leaves(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
