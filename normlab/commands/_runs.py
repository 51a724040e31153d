"""The runs that the places on a command line name, and which of them cannot be read."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._terminal import at_work, complain
from normlab.records.record import RunRecord
from normlab.records.store import CONFIG_FILE, RECORD_FILE, RunStore, read_record

if TYPE_CHECKING:
    from normlab.train.loaded import LoadedRun


def read_places(places: Sequence[Path]) -> tuple[list[tuple[Path, RunRecord]], list[str]]:
    """Read every run at or below the places once, with its folder; say what cannot be read.

    A place is a folder of runs, the folder of a run, a `record.json`, or an address.
    """
    runs: dict[tuple[Path, str], tuple[Path, RunRecord]] = {}  # by real folder and name
    real = cache(Path.resolve)
    problems: list[str] = []
    for place in places:
        if place.name == RECORD_FILE or (place / RECORD_FILE).is_file():
            folder = place.parent if place.name == RECORD_FILE else place
            try:
                there = folder.resolve()
                runs[there.parent, there.name] = folder, read_record(folder)
            except ValueError as error:
                problems.append(str(error))
            continue
        store = RunStore(place)
        entries = store.entries()
        runs |= {(real(run[0].parent), run[0].name): run for run in entries}
        problems += [message for _, message in store.damaged]
        if not entries and not store.damaged and len(places) > 1:
            problems.append(f"{place}: no run there" + ("" if place.exists() else ", no such path"))
    return list(runs.values()), problems


def runs_of(place: Path) -> list[Path]:
    """Return the folders of the runs that RUN names: a run, or an experiment's in order of seeds.

    Raises ValueError for a place without runs, with a damaged one, or of several experiments.
    """
    if (place / CONFIG_FILE).is_file() and not (place / RECORD_FILE).is_file():
        RunStore(place).read(place)  # says that the run has not ended
    runs, problems = read_places([place])
    if problems:
        raise ValueError(problems[0])
    if not runs:
        raise ValueError(none_below([place]))
    if len({record.fingerprint for _, record in runs}) > 1:
        raise ValueError(f"{place} has several experiments: name one, such as {runs[0][0].parent}")
    return [folder for folder, _ in sorted(runs, key=lambda run: run[1].seed)]


def one_run(place: Path) -> Path:
    """Return the folder of the one run that RUN names; ValueError for an experiment of several."""
    folders = runs_of(place)
    if len(folders) > 1:
        raise ValueError(f"{place} has {len(folders)} runs: name one, such as {folders[0]}")
    return folders[0]


def none_below(places: Sequence[Path], which: str = "") -> str:
    """Say that no run is at or below places, and what was meant where a path is nearly right."""
    text = f"no run{which} below {', '.join(map(str, places))}"
    near = [str(found) for place in places if (found := nearest(place)) is not None]
    meant = f". Did you mean {' '.join(near)}?" if near else "; `normlab train` makes one"
    return text + meant


def nearest(place: Path) -> Path | None:
    """Return a path with nearly the name of one that does not exist, if there is any.

    For `runs_dir=F`, as a run is told, that is `F`.
    """
    key, _, folder = str(place).partition("=")
    if key == "runs_dir" and not place.exists():
        return Path(folder)
    if place.exists() or not place.parent.is_dir():
        return None
    names = [path.name for path in place.parent.iterdir()]
    return next((place.with_name(n) for n in get_close_matches(place.name, names, n=1)), None)


def load(
    folder: Path, changes: Sequence[str], *, weights: str | None, fold: bool = False
) -> "LoadedRun":
    """Load a run as `normlab.train.loaded.load_run` does; warn where it is not a whole one."""
    with at_work(f"loading {folder}"):
        from normlab.train.loaded import load_run

        run = load_run(folder, [*changes], fold=fold, weights=weights)
    say_unfinished(folder, run.record)
    return run


def say_unfinished(folder: Path, record: RunRecord) -> None:
    """Warn of a run whose weights are not those of a whole run."""
    if (ended := record.outcome).status != "finished":
        complain(
            f"{folder}: {ended.status} at step {ended.step:,}: these are not the weights of a "
            "whole run"
        )


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
