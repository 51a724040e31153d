"""What sets two runs apart, and whether they may be compared: `why_not_paired`.

A difference between two runs is one of what they compare only if all else is the same. Runs are
paired by seed, and the two runs of a pair share their data, number of processes, code and
arithmetic. Whole seeds may be computed on another machine, one run of a pair may not: bf16 and
float32 round differently, and so do the kernels of different instruction sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from normlab.config.sites import NORM_KEYS
from normlab.records.record import Parts, RunRecord, parts

_T = TypeVar("_T")
MadeBy = tuple[int | str, Mapping[str, str]]
"""The numerics of a run and the hashes of its own norms (`RunRecord.made_by`)."""
_DATA = ("source", "sizes", "checksums")
_SITES = (*NORM_KEYS, "sites")  # a choice of `norm` is the label of all its sites
_UNKNOWN = "unknown"
ABSENT = "(absent)"


def why_not_paired(
    a: RunRecord,
    b: RunRecord,
    *,
    may_differ: tuple[str, ...] | None = None,
    precision: bool = True,
    code: bool = True,
) -> str | None:
    """Return what two runs of one seed do not share, None where they may be compared.

    `may_differ` are the dotted keys of the config in which they may differ, None for all; with
    `task` among them the data may differ too. Without `precision` or `code` these may.
    """
    if "task" not in (may_differ or ()):
        for key in _DATA:
            if a.data.get(key) != b.data.get(key):
                return f"different data ({key})"
    if a.environment.get("world_size") != b.environment.get("world_size"):
        return "different numbers of processes"
    if code and not same_code(a.made_by, b.made_by):
        return "different code"
    kinds = arithmetic(a), arithmetic(b)
    if kinds[0] != kinds[1]:
        compared = not precision or _precisions_are_compared(a, b)
        if not compared or (kinds[0][0], kinds[0][2]) != (kinds[1][0], kinds[1][2]):
            return f"different arithmetic ({'; '.join(map(' '.join, kinds))})"
    if may_differ is not None and (keys := settings(a.parts, b.parts, may_differ)):
        return f"different settings ({', '.join(keys)})"
    return None


def same_code(a: MadeBy, b: MadeBy) -> bool:
    """Tell whether two runs have the same numerics, and the same file of each norm of both."""
    return a[0] == b[0] and all(a[1][name] == b[1][name] for name in a[1].keys() & b[1].keys())


def code_remark(made_by: Iterable[MadeBy]) -> str | None:
    """Say that runs were made by different states of the code; None where they were not."""
    numerics: set[int | str] = set()
    norms: dict[str, set[str]] = {}
    for number, own in made_by:
        numerics.add(number)
        for name, digest in own.items():
            norms.setdefault(name, set()).add(digest)
    changed = [name for name, found in norms.items() if len(found) > 1]
    if len(numerics) == 1 and not changed:
        return None
    named = f": {', '.join(changed)}" if changed else ""
    return f"made by different states of the code{named}"


def arithmetic(record: RunRecord) -> tuple[str, str, str]:
    """Return device type, precision and instruction set, such as `("cpu", "fp32", "AVX2")`.

    A record without an instruction set has `unknown (DEVICE)` there.
    """
    return arithmetic_of(record.environment)


def arithmetic_of(environment: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the arithmetic that the environment of a record names, as `arithmetic` does."""
    keys = ("device_type", "precision", "instruction_set")
    device, precision, instructions = (environment.get(key) for key in keys)
    if instructions is None:
        instructions = f"{_UNKNOWN} ({environment.get('device', 'no device named')})"
    return str(device or _UNKNOWN), str(precision or _UNKNOWN), str(instructions)


def _precisions_are_compared(a: RunRecord, b: RunRecord) -> bool:
    """Tell whether both configs name a precision, and not the same one."""
    named = {record.config.get("precision", "auto") for record in (a, b)}
    return len(named) == 2 and "auto" not in named


def spelled(key: str) -> tuple[str, ...]:
    """Return the dotted keys of the config that a key stands for; tasks repeat some of them."""
    if key == "norm":
        return _SITES
    dotted = key.rpartition("@")[2].replace("/", ".")
    return dotted, f"task.{dotted}"


def settings(a: Parts, b: Parts, may_differ: tuple[str, ...]) -> dict[str, tuple[Any, Any]]:
    """Return the keys that differ and may not, each with its two values.

    A key that repeats a number which may differ may differ too: so `schedule.lr`, which is
    `optim.lr` again, and the layers that a depth stands for.
    """
    left, right = varying([a, b])
    found = {key: (value, right[key]) for key, value in left.items()}
    others = dict(without(found, may_differ))
    may = [pair for key, pair in found.items() if key not in others]
    repeated = [pair for pair in may if all(_is_number(value) for value in pair)]
    return {key: pair for key, pair in others.items() if pair not in repeated}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Map each dotted key at which two configs differ to its values in `a` and in `b`.

    A key that only one of them has is `ABSENT` in the other. Empty exactly when the fingerprints
    agree.
    """
    left, right = varying([parts(a), parts(b)])
    return {key: (value, right[key]) for key, value in left.items()}


def varying(experiments: Sequence[Parts]) -> list[dict[str, Any]]:
    """Return the values of each experiment at the dotted keys at which not all are the same.

    A key that an experiment does not have is `ABSENT`.
    """
    keys = sorted({k for each in experiments for k, _ in each.items() ^ experiments[0].items()})
    return [
        {key: json.loads(each[key]) if key in each else ABSENT for key in keys}
        for each in experiments
    ]


def without(experiment: Mapping[str, _T], keys: tuple[str, ...]) -> tuple[tuple[str, _T], ...]:
    """Return the items of an experiment without some dotted keys and what is below them."""
    below = tuple(f"{key}." for key in keys)
    return tuple(
        (k, value) for k, value in experiment.items() if k not in keys and not k.startswith(below)
    )
