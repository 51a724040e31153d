"""Readable names of settings, their values, and points of a grid: `batch size 8, pre`.

A key's title, its unit and its values in words are properties of the key (`KeyFacts` in
`normlab.config.keys`).
"""

import re
from collections.abc import Mapping

from normlab.config.keys import KeyFacts
from normlab.config.schema import KEYS
from normlab.records.point import point_values

NUMBER = re.compile(r"-?[\d.]+(e-?\d+)?")


def _facts(key: str) -> KeyFacts:
    return KEYS.get(key, KeyFacts())


def setting(key: str) -> str:
    """Return the name of a config key: `batch size`, `steps`, or the key itself."""
    facts = _facts(key)
    return facts.title or facts.unit or key


def setting_with_values(key: str, numbers: str) -> str:
    """Return numbers with the name of their setting: `batch size 8 to 32`, `60 and 300 steps`."""
    if unit := _facts(key).unit:
        return f"{numbers} {unit.removesuffix('s') if numbers == '1' else unit}"
    return f"{setting(key)} {numbers}"


def point_name(point: str, names: Mapping[str, str] = {}) -> str:
    """Return a point of a grid, such as `batch_size=8 placement=pre`, in words.

    `names` are the user's names for keys.
    """
    phrases = (
        f"{names[key]} {text}"
        if key in names
        else phrase(key, float(text) if NUMBER.fullmatch(text) else text)
        for key, text in point_values(point).items()
    )
    return ", ".join(phrases) or point


def phrase(key: str, value: object) -> str:
    """Return a setting and its value in words.

    `3,000 steps`, `batch size 32`, `learning rate 0.001`, `bf16`, `padding excluded`, and for an
    option of a config group `model small`. Other keys are shown as in a command.
    """
    facts, typed = _facts(key), _typed(value)
    if typed in facts.values:
        return facts.values[typed]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = f"{value:,.12g}" if is_number else typed
    if facts.unit and is_number:
        return setting_with_values(key, text)
    if facts.title or facts.unit or "." not in key:
        return f"{setting(key).replace('_', ' ')} {text}"
    return f"{key}={typed}"


def _typed(value: object) -> str:
    """Return a value as it is typed in a command: `null`, `true`, `0.001`."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return f"{value:.12g}" if isinstance(value, int | float) else str(value)
