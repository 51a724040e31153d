"""The runs that the places on a command line name, and which of them cannot be read."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from normlab.records.record import RunRecord
from normlab.records.store import RECORD_FILE, RunStore, read_record


def read_places(places: Sequence[Path]) -> tuple[list[tuple[Path, RunRecord]], list[str]]:
    """Read every run at or below the places once, with its folder; say what cannot be read.

    A place is a folder of runs, the folder of a run, or a `record.json`.
    """
    runs: dict[tuple[str, ...], tuple[Path, RunRecord]] = {}  # by the parts of resolved paths
    problems: list[str] = []
    for place in places:
        if place.name == RECORD_FILE or (place / RECORD_FILE).is_file():
            folder = place.parent if place.name == RECORD_FILE else place
            try:
                runs[folder.resolve().parts] = folder, read_record(folder / RECORD_FILE)
            except ValueError as error:
                problems.append(str(error))
            continue
        store, top, depth = RunStore(place), place.resolve().parts, len(place.parts)
        entries = store.entries()
        runs |= {(*top, *run[0].parts[depth:]): run for run in entries}
        problems += [message for _, message in store.damaged]
        if not entries and not store.damaged and len(places) > 1:
            problems.append(f"{place}: no run there" + ("" if place.exists() else ", no such path"))
    return list(runs.values()), problems


def given_twice(members: Iterable[RunRecord], folders: Mapping[int, Path]) -> str | None:
    """Say which folders hold the same seed of one experiment, if two do.

    `folders` are those of the records, by `id`.
    """
    seeds: dict[int, RunRecord] = {}
    for record in members:
        known = seeds.setdefault(record.seed, record)
        if known is not record:
            places = " and ".join(str(folders[id(each)]) for each in (known, record))
            return (
                f"{places} are both seed {record.seed} of one experiment, which is left out: "
                "name the folders to compare, or remove one of the two"
            )
    return None


def conditions(where: Iterable[str]) -> dict[str, str]:
    """Return what `--where KEY=VALUE` asks for by its keys; ValueError for another form."""
    found: dict[str, str] = {}
    for text in where:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ValueError(f"--where {text}: expected KEY=VALUE, such as --where norm=bn")
        found[key] = value
    return found
