"""Run folders, `<root>/[<name>/]<task>-<norm>-<placement>-<fingerprint>/seed<k>`, and their files.

The path depends only on the config, so the same command finds the same folder again. The folder
holds `record.json`, the logged rows in `metrics.jsonl` (one flat JSON object with an integer `step`
per line), and the output of the tested weights on each test split, one sentence per line, in
`hypotheses.txt` for the split `test` and `hypotheses-<split>.txt` for other splits. It also keeps
the vocabulary, so that a model is never used with a different one, and can translate or continue a
text without the data. Published runs are packed and have an address instead of a folder
(`normlab.records.packed`).
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from normlab.errors import UserError
from normlab.records.files import atomic_write, read_file
from normlab.records.labels import norm_label
from normlab.records.packed import RECORDS, address_of, pack, run_at, runs_at
from normlab.records.record import MEND_RUN, Row, RunRecord, fingerprint

RUNS = Path("runs")
"""The folder of runs if `runs_dir` is not set."""
RECORD_FILE = "record.json"
CONFIG_FILE = "config.yaml"
METRICS_FILE = "metrics.jsonl"
PROGRESS_FILE = "progress.json"
HYPOTHESES_FILE = "hypotheses.txt"
VOCABULARY_FOLDER = "vocabulary"
MEND_VOCABULARY = (
    "copy it from another seed of the experiment, or remove the run's folder and train it again"
)
SPIKE_COUNT = "stability/spikes/count"
_T = TypeVar("_T")
_NOT_FOLLOWED = (
    "is a link, and links are not followed, so its runs are missing; move them back, or pass "
    "their folder to the command as well"
)
_SEED_FOLDER = re.compile(r"seed\d+")
_ROW = msgspec.json.Decoder(Row, strict=False)  # "nan" and "inf" are numbers


def run_label(config: Mapping[str, Any]) -> str:
    """Return an experiment's name, `<task>-<norm>-<placement>-<fingerprint>`, without the seed."""
    choices = config["choices"]
    parts = (choices["task"], norm_label(choices), choices["placement"], fingerprint(config))
    return re.sub(r"[^\w.+@=,-]", "_", "-".join(map(str, parts)))


def run_id(config: Mapping[str, Any]) -> str:
    """Return a run's name (experiment and seed) as a single word that trackers accept."""
    return f"{run_label(config)}-seed{config['seed']}"


class RunStore:
    """The runs in a folder, which need not exist yet.

    After a call to `entries`, `damaged` lists the unreadable files with reasons, and `open` lists
    the folders of runs that have a config but no record because they are running or were killed.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.damaged: list[tuple[Path, str]] = []
        self.open: list[Path] = []

    def run_dir(self, config: Mapping[str, Any]) -> Path:
        folder = self.root / (config["observe"].get("name") or "")
        return folder / run_label(config) / f"seed{config['seed']}"

    def write(self, record: RunRecord, run_dir: Path) -> Path:
        """Write a record atomically, or raise `OSError` with the path of the file."""
        run_dir.mkdir(parents=True, exist_ok=True)
        with atomic_write(run_dir / RECORD_FILE) as file:
            file.write(record.to_json())
        return run_dir / RECORD_FILE

    def entries(self) -> list[tuple[Path, RunRecord]]:
        """Return all readable records with their run folders or addresses, in path order.

        An address without runs raises UserError. The subfolders of a run's folder `seed<k>` are not
        searched. Links are not followed, because a folder of runs may come from a stranger. A link
        that hides runs counts as damaged.
        """
        self.damaged, self.open = [], []
        if (addressed := runs_at(self.root)) is not None:
            places = [addressed[0].addresses[key] for key in addressed[1]]
            return [(place, read_record(place)) for place in places]
        items: list[tuple[Path, RunRecord]] = []
        for place, folders, files in os.walk(self.root, onerror=self._unreadable):
            folders.sort()
            names, folder = {*folders, *files}, Path(place)
            lost = [folder / name for name in sorted(names) if self._hides_runs(folder / name)]
            self.damaged += [(link, f"{link} {_NOT_FOLLOWED}") for link in lost]
            name = RECORD_FILE if RECORD_FILE in names else RECORDS
            try:
                if RECORD_FILE in names:
                    items.append((folder, read_record(folder)))
                elif RECORDS in names:
                    items += [(each, read_record(each)) for each in pack(folder).addresses.values()]
                elif CONFIG_FILE in names:
                    self.open.append(folder)
            except UserError as error:
                # Report the link; otherwise a seed would silently be missing.
                self.damaged.append((folder / name, str(error)))
            if _SEED_FOLDER.fullmatch(folder.name) and names & {RECORD_FILE, CONFIG_FILE}:
                folders.clear()
        return items

    def _hides_runs(self, link: Path) -> bool:
        """Return whether a path is a broken link, or a link to runs that are not below `root`."""
        in_run = _SEED_FOLDER.fullmatch(link.parent.name)
        if in_run or link.name.startswith(".") or not link.is_symlink():
            return False
        if not link.exists():
            return True
        outside = not link.resolve().is_relative_to(self.root.resolve())
        depths = (RECORD_FILE, f"*/{RECORD_FILE}", f"*/*/{RECORD_FILE}")
        return outside and link.is_dir() and any(any(link.glob(name)) for name in depths)

    def _unreadable(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            place = str(error.filename)
            self.damaged.append((Path(place), f"{place}: cannot be read: {error.strerror}"))


def record_file(place: Path) -> Path:
    """Return the file that holds the record of a run, whether packed or not."""
    address = address_of(place)
    return place / RECORD_FILE if address is None else address.folder / RECORDS


def read_record(place: Path, *, mend: str = MEND_RUN) -> RunRecord:
    """Read the record in a folder or at an address. A UserError ends with the fix, `mend`."""
    if (packed := run_at(place)) is not None:
        return cast("RunRecord", packed[0].records[packed[1]])
    path = place / RECORD_FILE
    try:
        return RunRecord.from_json(read_file(path), origin=str(path), mend=mend)
    except (FileNotFoundError, NotADirectoryError):
        problem = "no such record; the run has not ended yet, or this is not a run folder"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; make it readable, or remove it"
    raise UserError(f"{path}: {problem}")


def read_progress(run_dir: Path) -> dict[str, Any] | None:
    """Return an active run's progress (see `normlab.training.sinks.Live`), or None if unknown."""
    keys = ("phase", "done", "total", "loss", "spent", "left", "trained")
    try:
        progress = json.loads(read_file(run_dir / PROGRESS_FILE))
        return {key: progress[key] for key in keys}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


# Selection by config ------------------------------------------------------------------------------

_NOTHING = object()
_OWN: Mapping[str, Callable[[RunRecord], object]] = {
    "status": lambda record: record.outcome.status,
    "fingerprint": lambda record: record.fingerprint,
    "seed": lambda record: record.seed,
    "name": lambda record: record.config.get("observe", {}).get("name"),
}


def select(
    items: Sequence[_T],
    where: Mapping[str, object],
    record: Callable[[Any], RunRecord] = lambda each: each,
) -> list[_T]:
    """Return the records, or the items with a `record`, that match each `name: value` of `where`.

    A name is a config group, `status`, `fingerprint`, `seed`, `name` or a dotted config key. `norm`
    must match the whole label: `norm="bn"` is batch norm everywhere, and `norm="bn+ln"` is batch
    norm only in the encoder. Raises `UserError` if no record has the name.
    """
    records = [record(each) for each in items]
    for name in where:
        if records and all(lookup(each, name, _NOTHING) is _NOTHING for each in records):
            groups = {key for each in records for key in each.config.get("choices", {})}
            raise UserError(
                f"no record has the key {name!r}; allowed: {', '.join(sorted({*groups, *_OWN}))}, "
                "or a dotted key of the config such as optim.lr"
            )
    return [each for each, run in zip(items, records, strict=True) if fits(run, where)]


def fits(record: RunRecord, where: Mapping[str, object]) -> bool:
    """Return whether a record matches each `name: value` of `where`."""
    pairs = ((lookup(record, name, _NOTHING), value) for name, value in where.items())
    return all(written(actual) == written(value) for actual, value in pairs)


def lookup(record: RunRecord, name: str, default: object = None) -> object:
    """Return a record's value for a name (see `select`), or `default`."""
    return _OWN[name](record) if name in _OWN else lookup_in_config(record.config, name, default)


def lookup_in_config(config: Mapping[str, Any], name: str, default: object = None) -> object:
    """Return the value of a config group or a dotted key in a run's config, or `default`.

    The value of `norm` is the whole label.
    """
    choices = config.get("choices", {})
    if name == "norm":
        return norm_label(choices)
    if name in choices:
        return choices[name]
    node: Any = config
    for part in name.split("."):
        if not isinstance(node, dict) or part not in node:
            return default
        node = cast("dict[str, object]", node)[part]
    return node


def written(value: object) -> str:
    """Return the same text for equal values of a config or command line: "3e-3" and 0.003."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    try:
        return repr(float(str(value)))
    except ValueError:
        return str(value)


# The vocabulary, rows and hypotheses of a run ----------------------------------------------------


def write_vocabulary(run_dir: Path, vocabulary: Mapping[str, str]) -> None:
    """Write the files of a vocabulary (see `Task.vocabulary`) into a run's folder."""
    for name, text in vocabulary.items():
        (run_dir / VOCABULARY_FOLDER).mkdir(parents=True, exist_ok=True)
        with atomic_write(run_dir / VOCABULARY_FOLDER / name) as file:
            file.write(text)


def read_vocabulary(run_dir: Path) -> dict[str, str]:
    """Return the text of a run's vocabulary files by name.

    Raises UserError if a file cannot be read.
    """
    try:
        paths = sorted((run_dir / VOCABULARY_FOLDER).glob("*.json"))
        return {path.name: read_file(path).decode() for path in paths}
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{run_dir / VOCABULARY_FOLDER} cannot be read ({error}); {MEND_VOCABULARY}"
        ) from None


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a `metrics.jsonl`, or raise UserError if it is damaged (see `rows_of`)."""
    return [row for _, row in rows_of(read_file(path), path)]


def rows_of(text: bytes, path: Path) -> Iterator[tuple[bytes, Row]]:
    """Yield each complete line and its row. A damaged line raises UserError with its number."""
    *lines, _ = text.split(b"\n")
    for index, line in enumerate(lines, start=1):
        try:
            row = _ROW.decode(line)
            if type(row["step"]) is not int:
                raise TypeError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise UserError(
                f"{path}, line {index} is not a JSON object with a whole-number step; remove the "
                "line, or remove the run folder to train the run again"
            ) from None
        yield line + b"\n", row


def series(rows: Sequence[Row], name: str) -> list[tuple[int, float]]:
    """Return the (step, value) pairs of a metric from the rows that have it."""
    return [(int(row["step"]), float(row[name])) for row in rows if name in row]


def hypotheses_file(split: str) -> str:
    """Return the name of a test split's hypotheses file in a run's folder."""
    return HYPOTHESES_FILE if split == "test" else f"hypotheses-{split}.txt"


def read_hypotheses(place: Path) -> dict[str, list[str]]:
    """Return the lines of a run's hypotheses by test split. A damaged file raises UserError."""
    if (packed := run_at(place)) is not None:
        return packed[0].hypotheses.get(packed[1], {})
    splits: dict[str, list[str]] = {}
    for path in place.glob("hypotheses*.txt"):
        split = path.stem.removeprefix("hypotheses").removeprefix("-") or "test"
        try:
            splits[split] = read_file(path).decode().split("\n")[:-1]
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8 at byte {error.start}") from None
    return dict(sorted(splits.items()))
