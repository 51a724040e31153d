"""What two runs must share for their difference to be one of what is compared."""

from typing import Any

from normlab.config.sites import NORM_KEYS
from normlab.records.arithmetic import arithmetic, unlike
from normlab.records.fingerprint import Parts, parts, varying, without
from normlab.records.pairs import same_code
from normlab.records.record import RunRecord

_PROCESSES, _ARITHMETIC, _CODE = "numbers of processes", "arithmetic", "code"
_DATA = ("source", "sizes", "checksums")
_SITES = (*NORM_KEYS, "sites")  # a choice of `norm` is the label of all its sites


def difference(a: RunRecord, b: RunRecord, may_differ: tuple[str, ...]) -> str | None:
    """Say in what two runs of one seed are unlike, apart from some keys; None where in nothing.

    Data may differ where the task does.
    """
    if "task" not in may_differ and (reason := unlike_data(a, b)) is not None:
        return reason
    if (reason := unlike_making(a, b)) is not None:
        return reason
    if _rest(a, may_differ) != _rest(b, may_differ) and (
        keys := settings(parts(a.config), parts(b.config), may_differ)
    ):
        return f"unlike settings ({', '.join(keys)})"
    return None


def origin(a: RunRecord, b: RunRecord) -> str | None:
    """Say which of data, processes, arithmetic and code two runs of one seed do not share."""
    making = " and ".join(_unlike_in(a, b))
    reasons = [unlike_data(a, b), f"unlike {making}" if making else None]
    return ", ".join(reason for reason in reasons if reason is not None) or None


def unlike_making(a: RunRecord, b: RunRecord) -> str | None:
    """Say whether two runs of one seed are unlike in processes, code or arithmetic."""
    found = _unlike_in(a, b)
    first = next((name for name in (_PROCESSES, _CODE, _ARITHMETIC) if name in found), None)
    if first == _ARITHMETIC:
        return f"unlike arithmetic ({' '.join(arithmetic(a))}; {' '.join(arithmetic(b))})"
    return None if first is None else f"unlike {first}"


def _unlike_in(a: RunRecord, b: RunRecord) -> list[str]:
    """Name what two runs were not made alike in."""
    found = {
        _PROCESSES: a.environment.get("world_size") != b.environment.get("world_size"),
        _ARITHMETIC: unlike([a], [b]) is not None,
        _CODE: not same_code(a.made_by, b.made_by),
    }
    return [name for name, differs in found.items() if differs]


def unlike_data(a: RunRecord, b: RunRecord) -> str | None:
    """Say in what the data of two runs are unlike."""
    for key in _DATA:
        if a.data.get(key) != b.data.get(key):
            return f"unlike data ({key})"
    return None


def spelled(key: str) -> tuple[str, ...]:
    """Return the dotted keys of the config that a key stands for; tasks repeat some of them."""
    if key == "norm":
        return _SITES
    dotted = key.rpartition("@")[2].replace("/", ".")
    return dotted, f"task.{dotted}"


def _rest(record: RunRecord, keys: tuple[str, ...]) -> tuple[str, ...]:
    return without(parts(record.config), keys)


def settings(a: Parts, b: Parts, may_differ: tuple[str, ...]) -> dict[str, tuple[Any, Any]]:
    """Return the keys that differ and may not, each with its two values.

    A key that repeats a number which may differ may too: so `schedule.lr`, which is `optim.lr`
    again, and the layers that a depth stands for.
    """
    below = tuple(f"{key}." for key in may_differ)
    left, right = varying([a, b])
    found = {key: (value, right[key]) for key, value in left.items()}
    may = {k: pair for k, pair in found.items() if k in may_differ or k.startswith(below)}
    repeated = [pair for pair in may.values() if all(_is_number(value) for value in pair)]
    return {k: pair for k, pair in found.items() if k not in may and pair not in repeated}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
