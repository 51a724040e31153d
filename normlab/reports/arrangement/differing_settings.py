"""The settings in which experiments differ, and the notes on rows that differ in them."""

from collections.abc import Mapping, Sequence
from typing import Any

from normlab.config.schema import REPEATS
from normlab.records.grouping import grouped
from normlab.records.pairs import ROW_KEYS, Experiment, varying
from normlab.records.record import parts

_SHOWN = ("norm", "placement", "task", "task/corpus")  # options that are part of a row's name


def differing_settings(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the settings in which experiments differ, each with its value in every experiment.

    Options of config groups come first, then dotted keys. An option covers all keys below it. A key
    that has the same values as an earlier one is left out, and so is a key that only repeats
    another one (`REPEATS`), as `model.encoder_layers` repeats `model.depth`.
    """
    chosen = [config.get("choices", {}) for config in configs]
    groups = sorted({key for each in chosen for key in each} - {*_SHOWN})
    every = {key: [each.get(key) for each in chosen] for key in groups}
    options = {key: values for key, values in every.items() if len({*values}) > 1}
    differing = varying([parts(config) for config in configs])
    differing = {
        k: v for k, v in differing.items() if k not in REPEATS or differing.get(REPEATS[k]) != v
    }
    first: dict[tuple[str, str], str] = {}
    for key, values in differing.items():
        first.setdefault((key.rpartition(".")[2], repr(values)), key)
    keys = [key for key in first.values() if key.split(".")[0] not in options]
    return options | {key: differing[key] for key in keys}


def not_alike(
    rows: Mapping[str, Experiment],
    axes: Sequence[str] = (),
    row_keys: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, str]:
    """Return notes on differences between rows, by key, except for the keys that `axes` show.

    `row_keys` has the keys that are part of each row's name.
    """
    differing = differing_settings([row.records[0].config for row in rows.values()])
    below = (*ROW_KEYS, *(f"{axis}." for axis in axes))
    notes: dict[str, str] = {}
    for key, values in differing.items():
        if f"{key}.".startswith(below) or all(key in (row_keys or {}).get(row, ()) for row in rows):
            continue
        by_value = grouped(zip(map(str, values), rows, strict=True))
        text = "; ".join(f"{value} ({', '.join(labels)})" for value, labels in by_value.items())
        notes[key] = f"NOT ALIKE: rows differ in {key}: {text}"
    return notes
