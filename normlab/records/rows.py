"""Decides how the rows of a run are read back from `metrics.jsonl`, a JSON object a row.

A row is a flat dictionary of numbers with the whole number `step`; names are paths such as
`train/loss`. Numbers that are not finite are written as `records.canonical` says. A killed process
may leave a last line without its end; readers skip it.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from normlab.records.canonical import number
from normlab.records.files import from_json, read_file

METRICS_FILE = "metrics.jsonl"
SPIKE_COUNT = "stability/spikes/count"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a `metrics.jsonl`, with numbers as numbers; skips an unfinished last line.

    Raises `ValueError` naming file and line where the file is damaged.
    """
    return [
        {
            name: value if (real := number(value)) is None or isinstance(value, int) else real
            for name, value in row.items()
        }
        for _, row in rows_of(read_file(path), path)
    ]


def rows_of(text: bytes, path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield each whole line and the row in it; `path` is for the errors, as `read_rows` says."""
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines, start=1):
        if index == len(lines) and not line.endswith(b"\n"):
            return
        try:
            row = from_json(line)
            if type(row["step"]) is not int:
                raise TypeError
        except (ValueError, TypeError, KeyError):
            raise ValueError(
                f"{path}, line {index}: damaged, not a JSON object with a whole-number step; "
                "remove the line, or the run folder to start the run anew"
            ) from None
        yield line, cast("dict[str, Any]", row)


def series(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """Return step and value of a figure, where rows have it, in the order of the rows."""
    return [
        (row["step"], value)
        for row in rows
        if name in row and (value := number(row[name])) is not None
    ]


def spike_steps(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the steps of the rows in which the count of loss spikes has grown."""
    counted = [(0, 0.0), *series(rows, SPIKE_COUNT)]
    return [step for (_, before), (step, now) in itertools.pairwise(counted) if now > before]
