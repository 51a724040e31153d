"""What was computed and timed: `results/computed.json` and the reports `bench/norms*.json`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from normlab.records.files import read_json

FORMAT = "normlab.computed/1"
_NOISE = 1e-9  # figures are in float64: what is smaller is rounding, which machines do differently


@dataclass(frozen=True)
class Evidence:
    """One piece: what was asked, what was found, and in which file."""

    kind: Literal["unit"]
    question: str
    finding: str
    standing: Literal["supports", "contradicts"]
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])


def to_json(checks: Mapping[str, Sequence[Evidence]]) -> str:
    """Render what checks found, by their names, to the same bytes on every machine."""

    def plain(piece: Evidence) -> dict[str, Any]:
        numbers = {key: _rounded(value) for key, value in piece.numbers.items()}
        said = {"question": piece.question, "finding": piece.finding, "standing": piece.standing}
        return {**said, "numbers": numbers}

    named = {name: [plain(piece) for piece in pieces] for name, pieces in checks.items()}
    content = {"format": FORMAT, "checks": named}
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"


def _rounded(value: float) -> float:
    return 0.0 if abs(value) < _NOISE else float(f"{value:.4g}")


def read_computed(path: Path) -> dict[str, list[Evidence]]:
    """Read what the checks found; nothing without a file, `ValueError` for a damaged one."""
    if not path.is_file():
        return {}
    with _complaint(path, "normlab claims --write"):
        return {
            name: [msgspec.convert({"kind": "unit", **piece}, Evidence) for piece in pieces]
            for name, pieces in _content(path, FORMAT)["checks"].items()
        }


def _content(path: Path, wanted: str) -> dict[str, Any]:
    content = read_json(path)
    if content["format"] != wanted:
        raise ValueError(f"format is {content['format']!r}, this version reads {wanted!r}")
    return content


@contextmanager
def _complaint(path: Path, again: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: damaged ({error!r}); {again} makes it again") from None


FOLDER = "bench"
REPORTS = "norms*.json"
BENCH_FORMAT = "normlab.bench.norms/1"


@dataclass(frozen=True)
class Timed:
    """A candidate of a group: milliseconds, median, and by round the ratio to the first one."""

    milliseconds: float
    ratios: tuple[float, ...]


@dataclass(frozen=True)
class Timings:
    """A report: its file, the machine, and the candidates of each group by their names."""

    path: str
    machine: str
    groups: Mapping[str, Mapping[str, Timed]]


def report_paths(folder: Path) -> list[Path]:
    """Return the reports below a folder of results, relative to it."""
    return [Path(FOLDER, path.name) for path in sorted((folder / FOLDER).glob(REPORTS))]


def read_timings(path: Path, *, named: str) -> Timings:
    """Read a report; ValueError for one that is damaged."""
    with _complaint(path, f"python scripts/bench norms --json {path}"):
        content = _content(path, BENCH_FORMAT)
        machine = content["environment"]
        return Timings(
            path=named,
            machine=f"{machine['device']} {machine['precision']}",
            groups={
                group: {run["name"]: _timed(run) for run in runs}
                for group, runs in content["groups"].items()
            },
        )


def _timed(run: Mapping[str, Any]) -> Timed:
    return Timed(float(run["milliseconds"]["median"]), tuple(map(float, run["ratios_to_first"])))
