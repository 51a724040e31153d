"""The runs of a study at one scale, packed into three files, and addresses of single runs.

`records.jsonl` has one run per line: its `row`, `point` and `seed` in the study, and the fields of
its record if it has one. `curves.jsonl.gz` has the curves, and `hypotheses.jsonl.gz` has the output
of the tested weights on each test split. The same content always gives the same bytes.

The address `results/batching/small:bn batching=random@seed3` identifies a run by row, point and
seed. Without the point, the address stands for all points, and without `@seed3` for all seeds. An
address is a `Path` and is accepted wherever a run's folder is.
"""

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from normlab.errors import UserError
from normlab.records.files import atomic_write, read_file
from normlab.records.record import Row, RunRecord, plain, portable

RECORDS = "records.jsonl"
CURVES = "curves.jsonl.gz"
HYPOTHESES = "hypotheses.jsonl.gz"
PACK = (RECORDS, CURVES, HYPOTHESES)
MEND_PUBLISHED = "restore it, or remove its folder and publish again"
MOST_UNPACKED = 2**28  # in bytes; the hypotheses of a thousand runs are smaller
_T = TypeVar("_T")
_ADDRESS = re.compile(r"(?P<folder>.+):(?P<name>[^:]+?)(?:@seed(?P<seed>\d+))?")


class Key(NamedTuple):
    """The row, point and seed of a run in its study."""

    row: str
    point: str
    seed: int

    @property
    def row_and_point(self) -> tuple[str, str]:
        """The row and the point, which are the same for all seeds of an experiment."""
        return self.row, self.point

    @property
    def name(self) -> str:
        return f"{self.row} {self.point}".rstrip()


class _Line(msgspec.Struct, frozen=True):
    """A line of a packed file: the key of a run, and the part of the run in this file."""

    row: str
    point: str
    seed: int
    run_id: str | None = None
    rows: list[Row] = []
    splits: dict[str, list[str]] = {}


class Pack:
    """The packed runs of a folder, which are read on first use.

    A damaged file raises UserError with file and line. It is read only once, so every run raises
    the same error.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._errors: dict[str, str] = {}

    @cached_property
    def records(self) -> dict[Key, RunRecord | None]:
        """The records in file order, or None for a planned run without a record."""
        read = partial(RunRecord.from_json, mend=MEND_PUBLISHED)
        return self._content(
            RECORDS, lambda origin, text, line: read(text, origin=origin) if line.run_id else None
        )

    @cached_property
    def curves(self) -> dict[Key, list[Row]]:
        return self._content(CURVES, lambda origin, text, line: line.rows)

    @cached_property
    def hypotheses(self) -> dict[Key, dict[str, list[str]]]:
        return self._content(HYPOTHESES, lambda origin, text, line: line.splits)

    @cached_property
    def addresses(self) -> dict[Key, Path]:
        """The addresses of the runs that have a record."""
        keys = (key for key, record in self.records.items() if record is not None)
        return {key: Path(f"{self.folder}:{key.name}@seed{key.seed}") for key in keys}

    def _content(self, name: str, of: Callable[[str, bytes, _Line], _T]) -> dict[Key, _T]:
        """Return the result of `of` for each line of a file, given its origin, text and content."""
        if name in self._errors:
            raise UserError(self._errors[name])
        content: dict[Key, _T] = {}
        try:
            for origin, text, key, line in self._lines(name):
                if key in content:
                    run = f"{key.name} with seed {key.seed}"
                    raise UserError(f"{origin} has {run} a second time; {MEND_PUBLISHED}")
                content[key] = of(origin, text, line)
        except UserError as error:
            self._errors[name] = str(error)
            raise
        return content

    def _lines(self, name: str) -> Iterator[tuple[str, bytes, Key, _Line]]:
        """Yield the origin, text, key and decoded content of each line of a file."""
        path = self.folder / name
        if not path.exists():
            return
        try:
            text = read_file(path)
            if path.suffix == ".gz":
                text = gzip.GzipFile(fileobj=io.BytesIO(text)).read(MOST_UNPACKED + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} is damaged ({error}); {MEND_PUBLISHED}") from None
        if len(text) > MOST_UNPACKED:
            raise UserError(f"{path} has more than {MOST_UNPACKED} bytes of text; remove it")
        for count, line in enumerate(text.splitlines(), start=1):
            origin = f"{path}, line {count}"
            try:
                # Not strict for curves, in which "nan" and "inf" are numbers.
                content = msgspec.json.decode(line, type=_Line, strict=name != CURVES)
                if any(type(row.get("step")) is not int for row in content.rows):
                    raise ValueError("a row has no step")
            except (ValueError, RecursionError) as error:
                raise UserError(f"{origin} is damaged ({error}); {MEND_PUBLISHED}") from None
            yield origin, line, Key(content.row, content.point, content.seed), content


@lru_cache(maxsize=4)
def _pack(folder: Path, *_: object) -> Pack:
    return Pack(folder)


def pack(folder: Path) -> Pack:
    """Return the packed runs of a folder, cached until a file changes."""
    stats = [path.stat() for name in PACK if (path := folder / name).exists()]
    return _pack(folder, *((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats))


class Address(NamedTuple):
    """The folder, name and seed of an address. The seed is None for all seeds."""

    folder: Path
    name: str
    seed: int | None


def address_of(place: Path | str, *, packed: bool = True) -> Address | None:
    """Parse an address. Return None for other text.

    With `packed`, also return None if the folder has no packed runs.
    """
    if (match := _ADDRESS.fullmatch(str(place))) is None:
        return None
    folder, seed = Path(match["folder"]), match["seed"]
    exists = not packed or (folder / RECORDS).exists()
    return Address(folder, match["name"], int(seed) if seed else None) if exists else None


def runs_at(place: Path) -> tuple[Pack, list[Key]] | None:
    """Return the runs that an address stands for, or None if the path is not an address.

    Raises UserError if the address has no runs.
    """
    if (address := address_of(place)) is None:
        return None
    runs = pack(address.folder)
    of_name = [key for key in runs.addresses if address.name in (key.name, key.row)]
    keys = [key for key in of_name if address.seed in (None, key.seed)]
    if not keys:
        available = [f"seed{key.seed}" for key in of_name] or [key.name for key in runs.records]
        raise UserError(
            f"{place} is not a published run; available: {', '.join(dict.fromkeys(available))}"
        )
    return runs, keys


def run_at(place: Path) -> tuple[Pack, Key] | None:
    """Return the run at an address, or None if the path is not an address.

    Raises UserError if the address stands for several runs.
    """
    if (at_place := runs_at(place)) is None:
        return None
    runs, (key, *others) = at_place
    if others:
        raise UserError(f"{place} has several runs; choose one, such as {runs.addresses[key]}")
    return runs, key


def write_pack(
    folder: Path,
    records: Mapping[Key, RunRecord | None],
    curves: Mapping[Key, Sequence[Mapping[str, Any]]] = {},
    hypotheses: Mapping[Key, Mapping[str, Sequence[str]]] = {},
) -> None:
    """Write the packed files of a folder, with curves and hypotheses only for runs in `records`.

    Paths of folders in configs are shortened (see `portable`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / RECORDS) as file:
        for key, record in records.items():
            fields: dict[str, Any] = {} if record is None else json.loads(record.to_json())
            fields |= {"config": portable(fields["config"])} if fields else {}
            file.write(json.dumps({**key._asdict(), **fields}) + "\n")
    for name, field, content in ((CURVES, "rows", curves), (HYPOTHESES, "splits", hypotheses)):
        lines = [{**key._asdict(), field: content[key]} for key in records if content.get(key)]
        if not lines:
            (folder / name).unlink(missing_ok=True)
            continue
        with (
            atomic_write(folder / name, "wb") as file,
            gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        ):
            packed.writelines(f"{json.dumps(plain(line))}\n".encode() for line in lines)
