"""What the free parts of a record hold at the keys that are read of every record.

The config, the environment and the data of a record are of any version, and mostly for people. What
lists and tables read of them must be of these types where it is there at all, or one record of a
stranger would end a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

_NAME = re.compile(r"[A-Za-z0-9_][\w.+@=,-]{0,250}")
_TEXT, _NUMBER = (str, type(None)), (int, type(None))
# "*" is each key of a mapping, or each item of a list.
_SHAPES: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "config": {
        "choices": (dict,),
        "choices.*": _TEXT,
        "seed": (int,),
        "batch_size": _NUMBER,
        "max_tokens": _NUMBER,
        "accumulate": _NUMBER,
        "precision": _TEXT,
        "device": _TEXT,
    },
    "environment": {
        **dict.fromkeys(("code", "commit", "device", "device_type"), _TEXT),
        **dict.fromkeys(("precision", "instruction_set"), _TEXT),
        "code_files": (dict, type(None)),
        "code_files.*": (str,),
        "versions": (dict,),
        "versions.*": _TEXT,
        "world_size": _NUMBER,
        "threads": _NUMBER,
        "dirty": (bool, type(None)),
    },
    "data": {
        **dict.fromkeys(("source", "label", "language", "licence"), _TEXT),
        "languages": (list,),
        "languages.*": (str,),
        "checksums": (dict,),
        "sizes": (dict,),
    },
}
_NAMES = {
    **{str: "a string", int: "a whole number", bool: "true or false", dict: "an object"},
    **{list: "a list", type(None): "null"},
}


def unfit_name(run_id: str) -> bool:
    """Tell whether a run's name could not be a folder: published records lie below it."""
    return not _NAME.fullmatch(run_id)


def misshapen(part: str, content: Mapping[str, Any]) -> str | None:
    """Say at which key a part of a record has what it cannot have; None for nothing."""
    for key, types in _SHAPES[part].items():
        for found, value in _values(content, key):
            if type(value) not in types:
                expected = " or ".join(_NAMES[kind] for kind in types)
                return f"{part}.{found}: expected {expected}, found {value!r:.60}"
    return None


def _values(content: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    top, star, _ = key.partition(".*")
    if top not in content:
        return
    value = content[top]
    if not star:
        yield top, value
    elif isinstance(value, dict):
        node = cast("dict[str, Any]", value)
        yield from ((f"{top}.{name}", item) for name, item in node.items())
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        yield from ((f"{top}[{index}]", item) for index, item in enumerate(items))
