"""How two runs differ, and whether they may be compared: `why_not_paired`.

A difference in scores has a single cause only if everything else is the same. Runs are paired by
seed, and the two runs of a pair share their data, number of processes, code and arithmetic. Whole
seeds may run on another machine, but not one run of a pair: bf16 and float32 round differently,
and so do the kernels of different instruction sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from normlab.config.schema import NORM_KEYS
from normlab.records.record import Parts, RunRecord, parts

_T = TypeVar("_T")
MadeBy = tuple[int | str, Mapping[str, str]]
"""The numerics of a run and the hashes of its own norms (`RunRecord.made_by`)."""
ABSENT = "(absent)"


def why_not_paired(
    a: RunRecord,
    b: RunRecord,
    *,
    may_differ: tuple[str, ...] | None = None,
    precision: bool = True,
    code: bool = True,
) -> str | None:
    """Return why two runs of one seed may not be compared; None if they may.

    `may_differ` are the dotted keys of the config that may differ, None for all; with `task` among
    them the data may differ too. `precision=False` and `code=False` let these differ as well.
    """
    if "task" not in (may_differ or ()):
        for key in ("source", "sizes", "checksums"):
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
    """Return whether two runs have the same numerics, and the same file of each norm they share."""
    return a[0] == b[0] and all(a[1][name] == b[1][name] for name in a[1].keys() & b[1].keys())


def code_remark(made_by: Iterable[MadeBy]) -> str | None:
    """Return a remark if runs were made by different states of the code; None otherwise."""
    runs = list(made_by)
    files = {item for _, own in runs for item in own.items()}
    names = [name for name, _ in files]
    changed = sorted({name for name in names if names.count(name) > 1})
    if len({numerics for numerics, _ in runs}) == 1 and not changed:
        return None
    remark = "made by different states of the code"
    return f"{remark}: {', '.join(changed)}" if changed else remark


def arithmetic(record: RunRecord) -> tuple[str, str, str]:
    """Return device type, precision and instruction set, such as `("cpu", "fp32", "AVX2")`.

    If a record has no instruction set, it is `unknown (DEVICE)`.
    """
    return arithmetic_of(record.environment)


def arithmetic_of(environment: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the arithmetic in the environment of a record, as `arithmetic` does."""
    unknown = f"unknown ({environment.get('device', 'no device named')})"
    kind, precision = (str(environment.get(key)) for key in ("device_type", "precision"))
    return kind, precision, environment.get("instruction_set") or unknown


def _precisions_are_compared(a: RunRecord, b: RunRecord) -> bool:
    """Return whether both configs name a precision, and the two differ."""
    named = {record.config.get("precision", "auto") for record in (a, b)}
    return len(named) == 2 and "auto" not in named


def spelled(key: str) -> tuple[str, ...]:
    """Return the dotted config keys that a key stands for; tasks repeat some of them."""
    if key == "norm":
        return (*NORM_KEYS, "sites")  # the label `norm` covers all norms of a model
    dotted = key.rpartition("@")[2].replace("/", ".")
    return dotted, f"task.{dotted}"


def settings(a: Parts, b: Parts, may_differ: tuple[str, ...]) -> dict[str, tuple[Any, Any]]:
    """Return the keys that differ but may not, each with its two values.

    A key may also differ if it repeats a number that may: `schedule.lr` repeats `optim.lr`, and the
    keys that a depth sets repeat the depth.
    """
    left, right = varying([a, b])
    found = {key: (value, right[key]) for key, value in left.items()}
    others = dict(without(found, may_differ))
    repeated = [pair for key, pair in found.items() if key not in others and _are_numbers(*pair)]
    return {key: pair for key, pair in others.items() if pair not in repeated}


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, int | float) and type(value) is not bool for value in values)


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Map each dotted key at which two configs differ to its values in `a` and in `b`.

    A key that only one of them has is `ABSENT` in the other. The result is empty exactly when the
    fingerprints agree.
    """
    return settings(parts(a), parts(b), ())


def varying(experiments: Sequence[Parts]) -> list[dict[str, Any]]:
    """Return each experiment's values at the dotted keys that differ between any of them.

    A key that an experiment does not have is `ABSENT`.
    """
    keys = sorted({k for each in experiments for k, _ in each.items() ^ experiments[0].items()})
    return [
        {key: json.loads(each[key]) if key in each else ABSENT for key in keys}
        for each in experiments
    ]


def without(experiment: Mapping[str, _T], keys: tuple[str, ...]) -> tuple[tuple[str, _T], ...]:
    """Return the items of an experiment except some dotted keys and the keys below them."""
    below = tuple(f"{key}." for key in keys)
    return tuple(
        (k, value) for k, value in experiment.items() if k not in keys and not k.startswith(below)
    )
