"""Finds the runs that a user names as RUN: one run, the seeds of one experiment, or any runs."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from normlab.errors import UserError
from normlab.records.record import RunRecord
from normlab.records.store import CONFIG_FILE, RECORD_FILE, RUNS, read_record


def ended_runs(places: Sequence[Path]) -> dict[Path, RunRecord]:
    """Return the records of all runs that have ended in some places, keyed by run folder.

    Raises UserError for a place without runs, a damaged run, or the folder of an unfinished run.
    """
    from normlab.reports.runs import read_runs  # importing it would slow down --help

    for place in places:
        if (place / CONFIG_FILE).is_file() and not (place / RECORD_FILE).is_file():
            read_record(place)  # raises, since the run has not ended
    runs, problems = read_runs(places, ended=True)
    if problems or not runs:
        raise UserError(problems[0] if problems else none_below(places))
    return {run.folder: run.record for run in runs if run.folder and run.record}


def runs_of(place: Path) -> list[Path]:
    """Return the run folders at RUN: one run, or all runs of one experiment in order of seed.

    Raises UserError for a place without runs, with a damaged run, or with several experiments.
    """
    records = ended_runs([place])
    if len({record.fingerprint for record in records.values()}) > 1:
        raise UserError(
            f"{place} has several experiments; choose one, such as {next(iter(records))}"
        )
    return sorted(records, key=lambda folder: records[folder].seed)


def one_run(place: Path) -> Path:
    """Return the folder of the one run at RUN. Raise UserError for several runs."""
    folders = runs_of(place)
    if len(folders) > 1:
        raise UserError(f"{place} has {len(folders)} runs; choose one, such as {folders[0]}")
    return folders[0]


def none_below(places: Sequence[Path], which: str = "") -> str:
    """Return a message that there are no runs in these places, with similar paths.

    `which` describes the runs, such as ` that can be read`.
    """
    names = ", ".join(map(str, places))
    text, cure = f"no run{which} in {names}", "; `normlab train` makes one"
    if all(place != RUNS and not place.exists() for place in places):
        text = f"{names} {'does' if len(places) == 1 else 'do'} not exist"
        cure = "; `normlab list runs` shows the runs in runs/"
    near = [
        str(path)
        for place in places
        if (path := nearest(place) or nearest(RUNS / place)) not in (None, place)
    ]
    return text + (f". Did you mean {' '.join(near)}?" if near else cure)


def nearest(place: Path) -> Path | None:
    """Return the most similar existing path or address, or None if there is none."""
    if place.exists():
        return place
    folder = nearest(place.parent)
    if folder is None or not folder.is_dir():
        return None
    name, *row = place.name.split(":", 1)
    near = get_close_matches(name, [path.name for path in folder.iterdir()], n=1)
    return folder / ":".join([near[0], *row]) if near else None
