"""What was computed and timed: `results/computed.json` and the reports `bench/norms*.json`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

FORMAT = "normlab.computed/1"
FOLDER = "bench"
BENCH_FORMAT = "normlab.bench.norms/1"
_T = TypeVar("_T")
_NOISE = 1e-9  # values are float64: what is smaller is rounding, which differs between machines


class Evidence(Struct, frozen=True):
    """One finding of a check: what was asked and found."""

    question: str
    finding: str
    standing: Literal["supports", "contradicts"]
    numbers: Mapping[str, float] = {}


class _Computed(Struct):
    format: Literal["normlab.computed/1"]
    checks: dict[str, list[Evidence]]


def to_json(checks: Mapping[str, Sequence[Evidence]]) -> str:
    """Render the findings of checks, by their names, to the same bytes on every machine."""

    def plain(piece: Evidence) -> dict[str, Any]:
        numbers = {
            key: 0.0 if abs(value) < _NOISE else float(f"{value:.4g}")
            for key, value in piece.numbers.items()
        }
        return {**msgspec.structs.asdict(piece), "numbers": numbers}

    named = {name: [plain(piece) for piece in pieces] for name, pieces in checks.items()}
    content = {"format": FORMAT, "checks": named}
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"


def read_computed(path: Path) -> dict[str, list[Evidence]]:
    """Read the findings of the checks; nothing without a file, `ValueError` for a damaged one."""
    return _read(path, _Computed, "normlab claims --write").checks if path.is_file() else {}


class _Milliseconds(Struct, frozen=True):
    median: float


class Timed(Struct, frozen=True):
    """A candidate of a group: milliseconds, and by round the ratio to the first candidate."""

    name: str
    milliseconds: _Milliseconds
    ratios_to_first: tuple[float, ...]


class _Environment(Struct):
    device: str
    precision: str


class _Report(Struct):
    format: Literal["normlab.bench.norms/1"]
    environment: _Environment
    groups: dict[str, list[Timed]]


class Timings(Struct, frozen=True):
    """A report: its file, the machine, and the candidates of each group by their names."""

    path: str
    machine: str
    groups: Mapping[str, Mapping[str, Timed]]


def report_paths(folder: Path) -> list[Path]:
    """Return the reports below a folder of results, relative to it."""
    return [Path(FOLDER, path.name) for path in sorted((folder / FOLDER).glob("norms*.json"))]


def read_timings(path: Path, *, named: str) -> Timings:
    """Read a report; `ValueError` for a damaged one."""
    report = _read(path, _Report, f"python scripts/bench norms --json {path}")
    groups = {group: {run.name: run for run in runs} for group, runs in report.groups.items()}
    return Timings(named, f"{report.environment.device} {report.environment.precision}", groups)


def _read(path: Path, kind: type[_T], again: str) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise ValueError(f"{path}: damaged ({error}); recreate it with {again}") from None
