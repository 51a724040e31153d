"""The runs that `--where KEY=VALUE` selects, and messages about values that no run has."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from normlab.config.registry import norm_name
from normlab.records.store import lookup, select, written
from normlab.reports.runs import Run

_MOST_VALUES = 12  # more are not listed


def matching_runs(runs: Sequence[Run], conditions: Mapping[str, str]) -> list[Run]:
    """Return the runs whose records match all conditions. `norm=ln,bn` matches either value.

    A run without a record matches nothing. Raises UserError for a key that no run has.
    """
    matching = [*runs]
    for key, value in conditions.items():
        ended = [run for run in matching if run.record is not None]
        values = {value, *value.split(",")}  # a value may contain commas itself
        fitting = {
            id(run) for each in values for run in select(ended, {key: each}, lambda r: r.record)
        }
        matching = [run for run in ended if id(run) in fitting]
    return matching


def none_matching(
    runs: Sequence[Run], places: Sequence[Path], conditions: Mapping[str, str]
) -> str:
    """Return a message that no run matches, with the values that the runs have."""
    where = " ".join(f"--where {key}={value}" for key, value in conditions.items())
    text = f"no run that matches {where} in {', '.join(map(str, places))}"
    records = [run.record for run in runs if run.record is not None]
    for key, value in conditions.items():
        known = {str(lookup(record, key)) for record in records}
        if known and not {value, *value.split(",")} & known:
            text += _known_values(key, value, known)
    return text


def unmatched_values(runs: Sequence[Run], conditions: Mapping[str, str]) -> list[str]:
    """Return a message for each value in a list (`norm=ln,batchnorm`) that no ended run has."""
    records = [run.record for run in runs if run.record is not None]
    messages: list[str] = []
    for key, value in conditions.items():
        known = {written(actual := lookup(record, key)): str(actual) for record in records}
        if written(value) not in known:
            unknown = [each for each in value.split(",") if written(each) not in known]
            for each in unknown:
                choices = _known_values(key, each, known.values())
                messages.append(f"--where {key}={value}: no run has {each}{choices}")
    return messages


def _known_values(key: str, value: str, known: Collection[str]) -> str:
    """Return the last part of a message that no run has a value: a suggestion, or the values."""
    meant = ",".join(norm_name(word) for word in value.split(","))  # ln for layernorm
    if meant != value:
        return f". Did you mean --where {key}={meant}?"
    return f"; {key} is {', '.join(sorted(known))}" if len(known) <= _MOST_VALUES else ""
