"""Decides which timings a claim about speed may rest on: the committed `bench/norms*.json`.

They are reports of `python scripts/bench norms`, in which all candidates of a group took turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.records.files import read_json

FOLDER = "bench"
REPORTS = "norms*.json"
FORMAT = "normlab.bench.norms/1"


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
        if content["format"] != FORMAT:
            raise ValueError(f"format is {content['format']!r}, this version reads {FORMAT!r}")
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
