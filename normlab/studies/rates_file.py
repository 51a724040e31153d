"""Writes the rates of a scale into the text of a study's file without changing other text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from normlab.errors import UserError


def with_rates(text: str, scale: str, rates: Mapping[str, Sequence[str] | None]) -> str:
    """Return the text of a study's file with only these rates of a scale changed.

    None removes a row's rates. Lines of other rows and comments stay as they are. Raises UserError
    if the scale is written in braces. YAML's parser gives the positions of the rates in the text. A
    YAML writer is not used, because it would rewrap other lines.
    """
    content, text = yaml.safe_load(text), text.rstrip("\n") + "\n"
    before = content["scales"][scale].pop("rates", None) or {}
    after = {name: list(of) for name, of in {**before, **rates}.items() if of is not None}
    if after:
        content["scales"][scale]["rates"] = after
    size = _entries(_entries(yaml.compose(text))["scales"].value)[scale].value
    if size.flow_style:
        raise UserError(f"scales.{scale}: write one key per line")
    lines, old = text.splitlines(keepends=True), _entries(size).get("rates")
    new = {name: of for name, of in rates.items() if after.get(name) != before.get(name)}
    if after and old and isinstance(old.value, yaml.MappingNode) and not old.value.flow_style:
        changed = "".join(_with_entries(lines, old.value, new))
    else:
        changed = "".join(_with_block(lines, size, after)) if new else text
    if yaml.safe_load(changed) != content:
        raise UserError(f"scales.{scale}: rates cannot be written here without changing other keys")
    return changed


def _with_entries(
    lines: Sequence[str], mapping: Any, rates: Mapping[str, Sequence[str] | None]
) -> list[str]:
    """Return the lines of a file with entries of `rates` replaced, removed (None) or appended."""
    entries, indent = _entries(mapping), " " * mapping.value[0][0].start_mark.column
    added = [_line(indent, name, of) for name, of in rates.items() if of and name not in entries]
    edits = [(_end(mapping), _end(mapping), added)]
    for name in rates.keys() & entries.keys():
        key, value = entries[name]
        values, comment = rates[name], ""
        if value.flow_style:
            last = str(lines[value.end_mark.line])
            comment = last[value.end_mark.column :].rstrip()
        line = [] if values is None else [_line(indent, name, values, comment)]
        edits.append((key.start_mark.line, _end(value), line))
    changed = [*lines]
    for start, stop, new in sorted(edits, reverse=True):  # from the end, so that numbers stay valid
        changed[start:stop] = new
    return changed


def _with_block(lines: Sequence[str], size: Any, rates: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lines of a file with all rates of a scale rewritten, or without rates."""
    entries = _entries(size)
    if (old := entries.get("rates")) is not None:
        start, stop = old.key.start_mark.line, max(old.key.start_mark.line + 1, _end(old.value))
    else:  # insert before `tuning`, or at the end
        start = entries["tuning"].key.start_mark.line if "tuning" in entries else _end(size)
        stop = start
    indent = " " * next(iter(entries.values())).key.start_mark.column
    new = [f"{indent}rates:\n"] if rates else []
    new += [_line(f"{indent}  ", name, values) for name, values in rates.items()]
    return [*lines[:start], *new, *lines[stop:]]


def _line(indent: str, name: str, values: Sequence[str], comment: str = "") -> str:
    return f"{indent}{_scalar(name)}: [{', '.join(map(_scalar, values))}]{comment}\n"


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
