"""What was computed and timed: `results/computed.json` and the reports `bench/norms*.json`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

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
    content = {
        "format": FORMAT,
        "checks": {
            name: [
                {
                    "question": piece.question,
                    "finding": piece.finding,
                    "standing": piece.standing,
                    "numbers": {key: _rounded(value) for key, value in piece.numbers.items()},
                }
                for piece in pieces
            ]
            for name, pieces in checks.items()
        },
    }
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"


def read_computed(path: Path) -> dict[str, list[Evidence]]:
    """Read what the checks found; nothing without a file, `ValueError` for a damaged one."""
    try:
        content = read_json(path)
        if content["format"] != FORMAT:
            raise ValueError(f"format is {content['format']!r}, this version reads {FORMAT!r}")
        return {
            name: [_piece(piece) for piece in pieces] for name, pieces in content["checks"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: damaged ({error!r}); normlab claims --write makes it again"
        ) from None


def _piece(content: Mapping[str, Any]) -> Evidence:
    return Evidence(
        "unit",
        content["question"],
        content["finding"],
        content["standing"],
        {key: float(value) for key, value in content["numbers"].items()},
    )


def _rounded(value: float) -> float:
    return 0.0 if abs(value) < _NOISE else float(f"{value:.4g}")


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
    try:
        content = read_json(path)
        if content["format"] != BENCH_FORMAT:
            raise ValueError(
                f"format is {content['format']!r}, this version reads {BENCH_FORMAT!r}"
            )
        machine = content["environment"]
        return Timings(
            path=named,
            machine=f"{machine['device']} {machine['precision']}",
            groups={
                group: {run["name"]: _timed(run) for run in runs}
                for group, runs in content["groups"].items()
            },
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: damaged ({error!r}); python scripts/bench norms --json {path} makes it again"
        ) from None


def _timed(run: Mapping[str, Any]) -> Timed:
    return Timed(float(run["milliseconds"]["median"]), tuple(map(float, run["ratios_to_first"])))
