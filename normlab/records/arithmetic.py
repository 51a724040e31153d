"""The arithmetic a run was computed in, and whether two sides of a comparison share it.

bf16 and float32 round differently, and so do the kernels of different instruction sets: a
difference between runs of unlike arithmetic is not one of what they compare. Whole seeds may be
computed elsewhere, both sides of a pair may not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normlab.records.record import RunRecord

KEYS = ("device_type", "precision", "instruction_set")
"""Keys of a record's environment that make its arithmetic, in the order of the tuple."""

_UNKNOWN = "unknown"


def arithmetic(record: RunRecord) -> tuple[str, ...]:
    """Return device type, precision and instruction set, such as `("cpu", "fp32", "AVX2")`.

    Equal for two records exactly when they may form a pair. A record without an instruction set has
    `unknown (DEVICE)` there, which only records of the same processor share.
    """
    return arithmetic_of(record.environment)


def arithmetic_of(environment: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arithmetic that the environment of a record names, as `arithmetic` does."""
    device, precision, instructions = (environment.get(key) for key in KEYS)
    if instructions is None:
        instructions = f"{_UNKNOWN} ({environment.get('device', 'no device named')})"
    return str(device or _UNKNOWN), str(precision or _UNKNOWN), str(instructions)


def unlike(first: Iterable[RunRecord], second: Iterable[RunRecord]) -> str | None:
    """Say at which seed two sides were computed in unlike arithmetic; None where at none.

    A precision that both configs name is what they compare, and no mismatch; `auto` names none.
    """
    others = {record.seed: record for record in second}
    for record in first:
        other = others.get(record.seed)
        if other is None:
            continue
        here, there = arithmetic(record), arithmetic(other)
        if _precisions_are_compared(record, other):
            here, there = _without_precision(here), _without_precision(there)
        if here != there:
            return f"seed {record.seed} was computed in {' '.join(here)} and {' '.join(there)}"
    return None


def _precisions_are_compared(a: RunRecord, b: RunRecord) -> bool:
    named = {record.config.get("precision", "auto") for record in (a, b)}
    return len(named) == 2 and "auto" not in named


def _without_precision(found: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for key, part in zip(KEYS, found, strict=True) if key != "precision")
