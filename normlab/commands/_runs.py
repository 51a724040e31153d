"""The runs at paths or addresses from the command line, and the weights of a run."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._terminal import at_work, complain
from normlab.records.record import RunRecord
from normlab.records.store import CONFIG_FILE, RECORD_FILE, RunStore

if TYPE_CHECKING:
    from normlab.train.loaded import LoadedRun


def read_places(places: Sequence[Path]) -> tuple[list[tuple[Path, RunRecord]], list[str]]:
    """Read every run at or below the places once, with its folder; also return read errors.

    A place is a folder of runs, the folder of a run, a `record.json`, or an address.
    """
    runs: dict[Path, tuple[Path, RunRecord]] = {}  # by real path
    problems: list[str] = []
    for place in places:
        store = RunStore(place.parent if place.name == RECORD_FILE else place)
        found = store.entries()
        runs |= {folder.resolve(): (folder, record) for folder, record in found}
        problems += [message for _, message in store.damaged]
        if not found and not store.damaged and len(places) > 1:
            problems.append(f"{place}: no run there" + ("" if place.exists() else ", no such path"))
    return list(runs.values()), problems


def runs_of(place: Path) -> list[Path]:
    """Return the folders at RUN: one run, or the runs of one experiment in order of seeds.

    Raises ValueError for a place without runs, with a damaged run, or with several experiments.
    """
    if (place / CONFIG_FILE).is_file() and not (place / RECORD_FILE).is_file():
        RunStore(place).read(place)  # raises, since the run has not ended
    runs, problems = read_places([place])
    if problems:
        raise ValueError(problems[0])
    if not runs:
        raise ValueError(none_below([place]))
    if len({record.fingerprint for _, record in runs}) > 1:
        raise ValueError(f"{place} has several experiments: name one, such as {runs[0][0]}")
    return [folder for folder, _ in sorted(runs, key=lambda run: run[1].seed)]


def one_run(place: Path) -> Path:
    """Return the folder of the one run at RUN; raises ValueError for several runs."""
    folders = runs_of(place)
    if len(folders) > 1:
        raise ValueError(f"{place} has {len(folders)} runs: name one, such as {folders[0]}")
    return folders[0]


def none_below(places: Sequence[Path], which: str = "") -> str:
    """Return the message that there are no runs at or below places, with similar paths."""
    text = f"no run{which} below {', '.join(map(str, places))}"
    near = [str(found) for place in places if (found := nearest(place)) is not None]
    return text + (f". Did you mean {' '.join(near)}?" if near else "; `normlab train` makes one")


def nearest(place: Path) -> Path | None:
    """Return an existing path with a name similar to a missing one; None if there is none."""
    if place.exists() or not place.parent.is_dir():
        return None
    names = [path.name for path in place.parent.iterdir()]
    return next((place.with_name(n) for n in get_close_matches(place.name, names, n=1)), None)


def load(
    folder: Path, changes: Sequence[str], *, weights: str | None, fold: bool = False
) -> "LoadedRun":
    """Load a run like `normlab.train.loaded.load_run`; warn if it did not finish."""
    with at_work(f"loading {folder}"):
        from normlab.train.loaded import load_run

        run = load_run(folder, [*changes], fold=fold, weights=weights)
    say_unfinished(folder, run.record)
    return run


def say_unfinished(folder: Path, record: RunRecord) -> None:
    """Warn if the weights of a run are not from its last planned step."""
    if (ended := record.outcome).status != "finished":
        complain(
            f"{folder}: {ended.status} at step {ended.step:,}: these are not the weights of a "
            "whole run"
        )


def conditions(where: Iterable[str]) -> dict[str, str]:
    """Return the values of `--where KEY=VALUE` by key; raises ValueError for any other form."""
    found: dict[str, str] = {}
    for text in where:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ValueError(f"--where {text}: expected KEY=VALUE, such as --where norm=bn")
        found[key] = value
    return found
