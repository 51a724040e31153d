"""What of a run's rows is published beside its record, `curves.jsonl`, and which rows a run has.

Kept are the rows of validations and at most about a hundred of training, of each what a curve is
drawn from: step, tokens, `train/...`, `valid/...` and the figures of probes, not those by place;
numbers to six significant digits. The rows of training stand a power of two apart, so that a seed
that ended early and one that did not have steps in common.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.records.canonical import plain
from normlab.records.rows import METRICS_FILE, read_rows

CURVES_FILE = "curves.jsonl"
_MOST = 100
_ALWAYS = ("step", "tokens")


def thinned(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what is published of the rows of a run."""
    training = [row for row in rows if not _validates(row)]
    apart = 1
    while len(training) > _MOST * apart:
        apart *= 2
    last = len(training) - 1
    number = 0
    kept: list[dict[str, Any]] = []
    for row in rows:
        if not _validates(row):
            number += 1
            if number % apart and number - 1 not in (0, last):
                continue
        kept.append({name: significant(value) for name, value in row.items() if _drawn(name)})
    return kept


def curves_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write rows as lines of fixed bytes."""
    lines = (json.dumps(plain(dict(row)), sort_keys=True, allow_nan=False) for row in rows)
    return "".join(f"{line}\n" for line in lines)


def published_curves(run_dir: Path) -> str | None:
    """Return the text of `curves.jsonl` of a run folder, None where it has no rows.

    Raises `ValueError` naming file and line where its `metrics.jsonl` is damaged.
    """
    path = run_dir / METRICS_FILE
    if not path.is_file() or not (rows := read_rows(path)):
        return None
    return curves_text(thinned(rows))


def read_curves(path: Path) -> list[dict[str, Any]]:
    """Read a `curves.jsonl`, which may be missing; ValueError naming one that is damaged."""
    if not path.is_file():
        return []
    try:
        return read_rows(path)
    except ValueError as error:
        place = str(error).partition(": ")[0]
        raise ValueError(
            f"{place}: damaged curves; restore them, or publish the seed again"
        ) from None


def rows_of_run(run_dir: Path) -> list[dict[str, Any]]:
    """Read the rows of a run folder: its `metrics.jsonl`, or what of them was published.

    Nothing for a folder that has neither; ValueError naming the file that is damaged, and where.
    """
    path = run_dir / METRICS_FILE
    return read_rows(path) if path.is_file() else read_curves(run_dir / CURVES_FILE)


def significant(value: Any) -> Any:
    """Round a float to six significant digits; leave everything else."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _validates(row: Mapping[str, Any]) -> bool:
    return any(name.startswith("valid/") for name in row)


def _drawn(name: str) -> bool:
    if name.startswith("stability/"):
        return name.count("/") == 2
    return name in _ALWAYS or name.startswith(("train/", "valid/"))
