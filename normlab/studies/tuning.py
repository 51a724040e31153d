"""How the rates of a study are chosen, and how the choice is written into its file.

No torch, no Hydra.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from normlab.studies.file import StudyFile

MOST_SEEDS = 12
"""The seeds of the last planned look: 1 to 12 belong to the runs that count."""
_KEYS = ("key", "values", "seeds", "score")


@dataclass(frozen=True)
class Tuning:
    """How a value is chosen for each row at each point: the same grid, seeds and budget for all.

    Each of `values` of the config's `key` is tried on `seeds`, which are not used again, by the
    validation score `score` of the last weights. `overrides` are those of the trials, which are
    mostly shorter than a run. Rows of `whole_runs` are tried without them: a short trial can
    choose a rate that a whole run does not bear.
    """

    key: str
    values: tuple[str, ...]
    seeds: tuple[int, ...]
    score: str
    overrides: tuple[str, ...] = ()
    whole_runs: tuple[str, ...] = ()


def too_few(values: Collection[str], *, trial: bool) -> str | None:
    """Say what to do where values are no choice; None where they are enough.

    Three are, as only one that lies between two others is known not to be at their edge. Two are
    for a `trial`, a scale that decides nothing.
    """
    if len(values) >= (2 if trial else 3):
        return None
    count = "one value is" if len(values) == 1 else f"{len(values)} values are"
    if trial:
        return f"{count} no choice: give two or more"
    return (
        f"{count} no choice: give three or more, as [5e-4, 1e-3, 2e-3]; two are enough at "
        "scale=smoke and for a scale with `pilot: true`"
    )


def read_tuning(
    read: StudyFile,
    key: str,
    value: object,
    taken: Collection[int | str],
    rows: Collection[str],
    *,
    trial: bool,
) -> Tuning | str | None:
    """Read how rates are chosen, or the name of the study that says so.

    `taken` are the seeds of the scale and the axes of its grid, `rows` those of the study. A scale
    that is a `trial` decides nothing.
    """
    if value is None or isinstance(value, str):
        return value
    node = read.node(value, key, _KEYS, may=("overrides", "whole_runs"))
    found = Tuning(
        key=read.text(node["key"], f"{key}.key"),
        values=read.texts(node["values"], f"{key}.values"),
        seeds=read.numbers(node["seeds"], f"{key}.seeds"),
        score=read.text(node["score"], f"{key}.score"),
        overrides=read.overrides(node.get("overrides", []), f"{key}.overrides"),
        whole_runs=read.texts(node["whole_runs"], f"{key}.whole_runs")
        if "whole_runs" in node
        else (),
    )
    if (problem := too_few(found.values, trial=trial)) is not None:
        raise read.wrong(f"{key}.values", problem)
    read.among(found.whole_runs, rows, f"{key}.whole_runs")
    if not found.score.startswith("valid/"):
        raise read.wrong(f"{key}.score", f"{found.score} is not of validation, as valid/bleu")
    if used := sorted(set(found.seeds) & {*taken, *range(1, MOST_SEEDS + 1)}):
        raise read.wrong(f"{key}.seeds", f"{used[0]} is a seed of the study: take others, as 101")
    if found.key in taken:
        raise read.wrong(f"{key}.key", f"{found.key} is an axis of the grid")
    return found


def with_rates(text: str, scale: str, rates: Mapping[str, Sequence[str] | None]) -> str:
    """Return the text of a study whose scale has these rates; nothing else is changed.

    None takes away those that a row has. Rates of other rows, and comments, stay. Raises ValueError
    for a scale that is written in one line within braces.
    """
    wanted = yaml.safe_load(text)
    node = _value(_value(yaml.compose(text), "scales"), scale)
    if node.flow_style:
        raise ValueError(
            f"scales.{scale}: written within braces, where there is no place for rates: "
            "write a key a line"
        )
    both = {**(wanted["scales"][scale].pop("rates", None) or {}), **rates}
    kept = {name: list(values) for name, values in both.items() if values is not None}
    if kept:
        wanted["scales"][scale]["rates"] = kept
    written = {name: f"[{', '.join(map(_scalar, values))}]" for name, values in kept.items()}
    indent = " " * node.value[0][0].start_mark.column
    held = {key.value: (key, value) for key, value in node.value}
    changes: list[tuple[int, int, str]] = []
    name, old = held.get("rates", (None, None))
    if old is not None and not kept:
        changes.append(_without(text, name, old))
    elif old is not None and (old.flow_style or not old.value):
        lines = _lines(written, indent + "  ")
        changes.append((old.start_mark.index, old.end_mark.index, "\n" + lines.rstrip("\n")))
    elif old is not None:
        entries = {name: written[name] for name in rates if name in written}
        for key, value in old.value:
            if key.value not in kept:
                changes.append(_without(text, key, value))
            elif key.value in entries:
                changes.append((value.start_mark.index, _end(value), entries.pop(key.value)))
        after = _line_after(text, _end(old))
        inner = " " * old.value[0][0].start_mark.column
        changes.append((after, after, _lines(entries, inner)))
    elif kept:
        # Before the key that says how they are chosen, or behind the last.
        at, _ = held.get("tuning", (None, None))
        place = at.start_mark.index - len(indent) if at else _line_after(text, _end(node))
        lines = f"{indent}rates:\n{_lines(written, indent + '  ')}"
        changes.append((place, place, lines))
    for start, end, new in sorted(changes, reverse=True):
        before = text[:start]
        gap = "\n" if new.startswith(indent) and before and not before.endswith("\n") else ""
        text = before + gap + new + text[end:]
    assert yaml.safe_load(text) == wanted, "only the rates of one scale change"
    return text


def _value(node: Any, key: str) -> Any:
    return next(value for name, value in node.value if name.value == key)


def _end(node: Any) -> int:
    """Return where a node ends; of a block, where its last value does, before any comment."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _end(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _end(node.value[-1])
    return node.end_mark.index


def _without(text: str, key: Any, value: Any) -> tuple[int, int, str]:
    """Return the change that takes the lines of a key away."""
    return key.start_mark.index - key.start_mark.column, _line_after(text, _end(value)), ""


def _line_after(text: str, index: int) -> int:
    """Return where the line after the one of `index` begins."""
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1


def _lines(entries: Mapping[str, str], indent: str) -> str:
    return "".join(f"{indent}{_scalar(name)}: {value}\n" for name, value in entries.items())


def _scalar(text: str) -> str:
    """Write a text as YAML: as it is where it is read back so, else in quotes."""
    try:
        plain = yaml.safe_load(f"[{text}]") == [text] and yaml.safe_load(f"{text}: 1") == {text: 1}
    except (yaml.YAMLError, TypeError):
        plain = False
    return text if plain else json.dumps(text)
