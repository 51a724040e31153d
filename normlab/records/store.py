"""The folders of runs, `<root>/<task>-<norm>-<placement>-<fingerprint>/seed<k>`, and their files.

The path depends on the config alone, never on the time of day, so the same command finds the same
folder again. It holds the run's `record.json`, the logged rows in `metrics.jsonl` (a flat JSON
object with an integer `step` per line), and the output of the tested weights on each test split,
one sentence per line: `hypotheses.txt` for the split `test`, `hypotheses-<split>.txt` for others.
Published runs are packed, and have an address instead of a folder (`normlab.records.packed`).
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from normlab.records.files import atomic_write, from_json, read_file
from normlab.records.labels import norm_label
from normlab.records.packed import RECORDS, address_of, as_numbers, pack, run_at, runs_at
from normlab.records.record import MEND_RUN, RunRecord, fingerprint, number

RECORD_FILE = "record.json"
CONFIG_FILE = "config.yaml"
METRICS_FILE = "metrics.jsonl"
PROGRESS_FILE = "progress.json"
"""The progress of a run that is training."""
HYPOTHESES = "hypotheses"
HYPOTHESES_FILE = f"{HYPOTHESES}.txt"
SPIKE_COUNT = "stability/spikes/count"
_SEED_FOLDER = re.compile(r"seed\d+")


def run_label(config: Mapping[str, Any]) -> str:
    """Name an experiment, the same for all its seeds: `<task>-<norm>-<placement>-<fingerprint>`."""
    choices = config["choices"]
    parts = (choices["task"], norm_label(choices), choices["placement"], fingerprint(config))
    return "-".join(str(part).replace("/", "_") for part in parts)


def read_progress(run_dir: Path) -> dict[str, Any] | None:
    """Return the state of a running run: phase, done, total, loss, left; None if unknown."""
    try:
        found = from_json(read_file(run_dir / PROGRESS_FILE))
        return {key: found[key] for key in ("phase", "done", "total", "loss", "left")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run_id(config: Mapping[str, Any]) -> str:
    """Return the name of a run, one word that trackers accept: the experiment and its seed."""
    return f"{run_label(config)}-seed{config['seed']}"


class RunStore:
    """The runs below one folder.

    After `entries`, `damaged` lists what could not be read, and why, and `open` the folders of runs
    that have a config but no record: they are running, or were killed.
    """

    def __init__(self, root: Path | str) -> None:
        """Use a folder, which need not exist yet."""
        self.root = Path(root)
        self.damaged: list[tuple[Path, str]] = []
        self.open: list[Path] = []

    def run_dir(self, config: Mapping[str, Any]) -> Path:
        """Return the folder of a run, which need not exist yet."""
        return self.root / run_label(config) / f"seed{config['seed']}"

    def write(self, record: RunRecord, run_dir: Path) -> Path:
        """Write a record atomically; raises `OSError` naming the file."""
        run_dir.mkdir(parents=True, exist_ok=True)
        path, text = run_dir / RECORD_FILE, record.to_json()
        with atomic_write(path) as file:
            file.write(text)
        return path

    def has(self, run_dir: Path) -> bool:
        return (run_dir / RECORD_FILE).is_file()

    def read(self, run_dir: Path) -> RunRecord:
        """Read the record of a run; raises `ValueError` naming the file and the damage."""
        return read_record(run_dir)

    def records(self, **where: object) -> list[RunRecord]:
        """Return all records that match, in path order.

        `where` maps names to values: a config group, `status`, `fingerprint`, `seed` or a dotted
        key of the config. `norm` is compared with the whole label: `norm="bn"` is batch norm
        everywhere, `norm="bn+ln"` the split. Raises `ValueError` for a name that no record has.
        """
        return select([record for _, record in self.entries()], where)

    def entries(self) -> list[tuple[Path, RunRecord]]:
        """Return all records with their run folders, in path order.

        Damaged records are left out and listed in `damaged`, runs without a record in `open`.
        """
        self.damaged, self.open = [], []
        found: list[tuple[Path, RunRecord]] = []
        with without_collection():
            for folder, ended in self.run_folders():
                if not ended:
                    self.open.append(folder)
                    continue
                try:
                    found.append((folder, read_record(folder)))
                except ValueError as error:
                    # A damaged record is reported: otherwise a seed would be missing silently.
                    self.damaged.append((folder / RECORD_FILE, str(error)))
        return found

    def run_folders(self) -> list[tuple[Path, bool]]:
        """Return the run folders in path order, each with whether it has a record.

        Packed runs are returned as addresses. Folders below a run's folder `seed<k>` are not
        searched, since they hold no other runs. Raises ValueError for an address of no run.
        """
        if (named := runs_at(self.root)) is not None:
            return [(named[0].address(key), True) for key in named[1]]
        found: list[tuple[Path, bool]] = []
        for place, folders, files in os.walk(self.root, onerror=self._unreadable):
            folders.sort()
            names = {*folders, *files}
            if is_run := RECORD_FILE in names or CONFIG_FILE in names:
                found.append((Path(place), RECORD_FILE in names))
            if RECORDS in names:
                runs = pack(Path(place))
                made = [key for key, record in runs.records.items() if record is not None]
                found += [(runs.address(key), True) for key in made]
                self.damaged += [(runs.folder / RECORDS, message) for message in runs.damaged]
            if is_run and _SEED_FOLDER.fullmatch(os.path.basename(place)):
                folders.clear()
        return found

    def _unreadable(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            place = str(error.filename)
            self.damaged.append((Path(place), f"{place}: cannot be read: {error.strerror}"))


@contextlib.contextmanager
def without_collection() -> Generator[None]:
    """Disable the garbage collector, which doubles the time to read many records."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def record_file(place: Path) -> Path:
    """Return the file that holds the record of a run, packed or not."""
    found = address_of(place)
    return place / RECORD_FILE if found is None else found.folder / RECORDS


def read_record(place: Path, *, mend: str = MEND_RUN) -> RunRecord:
    """Read the record of a run folder or address; raises ValueError naming problem and cure.

    `mend` says what to do about a damaged `record.json`.
    """
    if (found := run_at(place)) is not None:
        record = found[0].records[found[1]]
        assert record is not None, "an address names runs that were made"
        return record
    path = place / RECORD_FILE
    try:
        return RunRecord.from_json(read_file(path), origin=str(path), mend=mend)
    except (FileNotFoundError, NotADirectoryError):
        problem = "no such record; the run has not ended yet, or this is not a run folder"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; make it readable, or remove it"
    raise ValueError(f"{path}: {problem}")


class Selection:
    """Records that are queried repeatedly: the values of each name are looked up once."""

    def __init__(self, records: Sequence[RunRecord]) -> None:
        """Query records; results keep their order."""
        self.records = records
        self._values: dict[str, list[str | None]] = {}

    def select(self, where: Mapping[str, object]) -> list[RunRecord]:
        """Return the records that match every `name: value` of `where` (see `RunStore.records`).

        Raises `ValueError` for a name that no record has.
        """
        kept = range(len(self.records))
        for name, wanted in where.items():
            values, text = self._by_place(name), _typed(wanted)
            kept = [place for place in kept if values[place] == text]
        return [self.records[place] for place in kept]

    def _by_place(self, name: str) -> list[str | None]:
        """Return each record's value of a name as text; None if it has none."""
        if name not in self._values:
            found = [lookup(record, name, _NOTHING) for record in self.records]
            values = [None if value is _NOTHING else _typed(value) for value in found]
            if found and all(value is None for value in values):
                groups = {key for each in self.records for key in each.config.get("choices", {})}
                raise ValueError(
                    f"no record has the key {name!r}; allowed: "
                    f"{', '.join(sorted({*groups, *_LOOK}))}, "
                    "or a dotted key of the config such as optim.lr"
                )
            self._values[name] = values
        return self._values[name]


def select(records: Sequence[RunRecord], where: Mapping[str, object]) -> list[RunRecord]:
    """Return the records that match, as `Selection.select` does."""
    return Selection(records).select(where)


_NOTHING = object()
_LOOK: Mapping[str, Callable[[RunRecord], object]] = {
    "norm": lambda record: norm_label(record.config.get("choices", {})),
    "status": lambda record: record.outcome.status,
    "fingerprint": lambda record: record.fingerprint,
    "seed": lambda record: record.seed,
}


def lookup(record: RunRecord, name: str, default: object = None) -> object:
    """Return a record's value of a name (see `RunStore.records`), or `default`."""
    if name in _LOOK:
        return _LOOK[name](record)
    if name in (choices := record.config.get("choices", {})):
        return choices[name]
    node: Any = record.config
    for part in name.split("."):
        if not isinstance(node, dict) or part not in node:
            return default
        node = cast("dict[str, object]", node)[part]
    return node


def _typed(value: object) -> str:
    """Format a value as on the command line, so that "32" finds 32 and "true" finds True."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a `metrics.jsonl` with "nan" as a float; skips an unfinished last line.

    Raises `ValueError` naming file and line if the file is damaged.
    """
    return [as_numbers(row) for _, row in rows_of(read_file(path), path)]


def rows_of(text: bytes, path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield each whole line and its row; raises like `read_rows`, naming `path`."""
    *lines, _ = text.split(b"\n")
    for index, line in enumerate(lines, start=1):
        try:
            row = from_json(line)
            if type(row["step"]) is not int:
                raise TypeError
        except (ValueError, TypeError, KeyError):
            raise ValueError(
                f"{path}, line {index}: damaged, not a JSON object with a whole-number step; "
                "remove the line, or the run folder to train the run again"
            ) from None
        yield line + b"\n", row


def series(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """Return the (step, value) pairs of a metric from the rows that have it."""
    return [
        (row["step"], value)
        for row in rows
        if name in row and (value := number(row[name])) is not None
    ]


def hypotheses_file(split: str) -> str:
    """Return the name of a test split's hypotheses file in a run's folder."""
    return HYPOTHESES_FILE if split == "test" else f"{HYPOTHESES}-{split}.txt"


def hypotheses_splits(place: Path) -> list[str]:
    """Return the test splits, sorted, that a run (folder or address) has hypotheses of."""
    if (found := run_at(place)) is not None:
        return sorted(found[0].hypotheses.get(found[1], ()))
    names = {path.stem.removeprefix(HYPOTHESES) for path in place.glob(f"{HYPOTHESES}*.txt")}
    return sorted(name.removeprefix("-") or "test" for name in names)


def read_hypotheses(place: Path, split: str = "test") -> list[str]:
    """Return the hypotheses of a run (folder or address) on a test split, one per line.

    Raises FileNotFoundError if there are none, and ValueError naming a damaged file.
    """
    path = place / hypotheses_file(split)
    if (found := run_at(place)) is not None:
        own = found[0].hypotheses.get(found[1], {})
        if split not in own:
            raise FileNotFoundError(str(path))
        return own[split]
    try:
        return read_file(path).decode().split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from None
