"""The runs at the paths that a user names: one run, the seeds of an experiment, or any."""

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.config.registry import norm_name
from normlab.errors import UserError
from normlab.records.record import RunRecord
from normlab.records.store import (
    CONFIG_FILE,
    RECORD_FILE,
    RUNS,
    lookup,
    read_record,
    select,
    written,
)

if TYPE_CHECKING:
    from normlab.reports.runs import Run

_MOST_VALUES = 12  # more are not listed


def ended_runs(places: Sequence[Path]) -> dict[Path, RunRecord]:
    """Return the records of all runs that have ended at or below some places, by run folder.

    Raises UserError for a place without runs, a damaged run, or the folder of an unfinished run.
    """
    from normlab.reports.runs import read_runs  # a tenth of a second, which --help need not take

    for place in places:
        if (place / CONFIG_FILE).is_file() and not (place / RECORD_FILE).is_file():
            read_record(place)  # raises, since the run has not ended
    runs, problems = read_runs(places, ended=True)
    if problems or not runs:
        raise UserError(problems[0] if problems else none_below(places))
    return {run.folder: run.record for run in runs if run.folder and run.record}


def runs_of(place: Path) -> list[Path]:
    """Return the run folders at RUN: one run, or all seeds of one experiment in order.

    Raises UserError for a place without runs, with a damaged run, or with several experiments.
    """
    records = ended_runs([place])
    if len({record.fingerprint for record in records.values()}) > 1:
        raise UserError(f"{place} has several experiments; name one, such as {next(iter(records))}")
    return sorted(records, key=lambda folder: records[folder].seed)


def one_run(place: Path) -> Path:
    """Return the folder of the one run at RUN; UserError for several runs."""
    folders = runs_of(place)
    if len(folders) > 1:
        raise UserError(f"{place} has {len(folders)} runs; name one, such as {folders[0]}")
    return folders[0]


def matching_runs(runs: "Sequence[Run]", conditions: Mapping[str, str]) -> "list[Run]":
    """Return the runs whose records have, for each key, the value or one of several (`ln,bn`).

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
    runs: "Sequence[Run]", places: Sequence[Path], conditions: Mapping[str, str]
) -> str:
    """Return a message that none of the runs has the values, with those that there are."""
    where = " ".join(f"--where {key}={value}" for key, value in conditions.items())
    text = f"no run that matches {where} below {', '.join(map(str, places))}"
    records = [run.record for run in runs if run.record is not None]
    for key, value in conditions.items():
        known = {str(lookup(record, key)) for record in records}
        if known and not {value, *value.split(",")} & known:
            text += _known_values(key, value, known)
    return text


def unmatched_values(runs: "Sequence[Run]", conditions: Mapping[str, str]) -> list[str]:
    """Return a message for each of several values (`norm=ln,batchnorm`) that no ended run has."""
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


def none_below(places: Sequence[Path], which: str = "") -> str:
    """Return a message that there are no runs at or below these places, with similar paths."""
    text = f"no run{which} below {', '.join(map(str, places))}"
    near = [
        str(path)
        for place in places
        if (path := nearest(place) or nearest(RUNS / place)) not in (None, place)
    ]
    return text + (f". Did you mean {' '.join(near)}?" if near else "; `normlab train` makes one")


def nearest(place: Path) -> Path | None:
    """Return the most similar existing path or address; None if there is none."""
    if place.exists():
        return place
    folder = nearest(place.parent)
    if folder is None or not folder.is_dir():
        return None
    name, *row = place.name.split(":", 1)
    near = get_close_matches(name, [path.name for path in folder.iterdir()], n=1)
    return folder / ":".join([near[0], *row]) if near else None
