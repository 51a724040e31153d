"""Decides which values records hold and how they become JSON.

JSON has no NaN and no infinities, and a diverged run has both, so a number that is not finite is
written as one of the strings `"nan"`, `"inf"`, `"-inf"`. Readers turn these strings back into
floats wherever a number is expected (`number`); elsewhere, as in a config, they stay strings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict

_NOT_FINITE = ("nan", "inf", "-inf")


def plain(value: object, key: str = "") -> Any:
    """Turn a nested value into what JSON can hold: dict, list, str, int, finite float, bool, None.

    Tuples become lists and numpy scalars numbers. Raises `TypeError` naming the dotted key of
    anything else.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return [plain(item, f"{key}[{index}]") for index, item in enumerate(items)]
    if isinstance(value, Struct):
        return _plain_dict(cast("Mapping[object, object]", asdict(value)), key)
    if isinstance(value, dict):
        return _plain_dict(cast("Mapping[object, object]", value), key)
    raise TypeError(
        f"{key or 'value'}: a {type(value).__name__} cannot be recorded; give a plain value "
        "(dict, list, str, int, float, bool or None)"
    )


def _plain_dict(node: Mapping[object, object], key: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, item in node.items():
        if not isinstance(name, str):
            raise TypeError(f"{key or 'value'}: key {name!r} is not a string")
        result[name] = plain(item, f"{key}.{name}" if key else name)
    return result


def number(value: object) -> float | None:
    """Read a number that `plain` wrote, or return None where there is none.

    A whole number that is too large for a float is none.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits
            return None
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    return None
