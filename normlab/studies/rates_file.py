"""Writes the rates of a scale into the text of a study's file without changing other text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from normlab.errors import UserError


def with_rates(text: str, scale: str, rates: Mapping[str, Sequence[str] | None]) -> str:
    """Return the text of a study's file with only these rates of a scale changed.

    None removes a row's rates. Raises UserError if the scale is written in braces. YAML's parser
    gives the positions of the rates in the text. A YAML writer is not used, because it would rewrap
    other lines.
    """
    content, text = yaml.safe_load(text), text.rstrip("\n") + "\n"
    before = content["scales"][scale].pop("rates", None) or {}
    after = {name: list(of) for name, of in {**before, **rates}.items() if of is not None}
    if after:
        content["scales"][scale]["rates"] = after
    size = _entries(_entries(yaml.compose(text))["scales"].value)[scale].value
    if size.flow_style:
        raise UserError(f"scales.{scale}: write one key per line")
    lines, entries = text.splitlines(keepends=True), _entries(size)
    comment = ""
    if (old := entries.get("rates")) is not None:  # replace them
        start, stop = old.key.start_mark.line, _end(old.value)
        if not old.value.flow_style:
            comment = lines[start][old.key.end_mark.column + 1 :].rstrip()
    else:  # insert before `tuning`, or at the end
        start = entries["tuning"].key.start_mark.line if "tuning" in entries else _end(size)
        stop = start
    indent = " " * next(iter(entries.values())).key.start_mark.column
    new = [f"{indent}rates:{comment}\n"] if after else []
    for name, values in after.items():
        new.append(f"{indent}  {_scalar(name)}: [{', '.join(map(_scalar, values))}]\n")
    changed = "".join([*lines[:start], *new, *lines[stop:]])
    if yaml.safe_load(changed) != content:
        raise UserError(f"scales.{scale}: rates cannot be written here without changing other keys")
    return changed


class _Entry(NamedTuple):
    """The nodes of an entry in a YAML mapping. Each node has its position in the text."""

    key: Any
    value: Any


def _entries(mapping: Any) -> dict[str, _Entry]:
    return {key.value: _Entry(key, value) for key, value in mapping.value}


def _end(node: Any) -> int:
    """Return the index of the line after a node. A block ends with its last entry."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
    return node.end_mark.line + (node.end_mark.column > 0)


def _scalar(text: str) -> str:
    """Format a string as YAML, with quotes only if YAML would read it differently without them."""
    try:
        plain = yaml.safe_load(f"[{text}]") == [text] and yaml.safe_load(f"{text}: 1") == {text: 1}
    except (yaml.YAMLError, TypeError):
        plain = False
    return text if plain else json.dumps(text)
