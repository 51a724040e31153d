"""Handmade studies and runs for tests of tables and pages."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from normlab.publishing.publish import publish
from normlab.publishing.study_arrangement import study_arrangement
from normlab.records.manifest import PAGE_FILE
from normlab.records.packed import Key
from normlab.records.record import Outcome, RunRecord, Score, plain
from normlab.reports.runs import Run
from normlab.reports.tables.build_table import build_table
from normlab.reports.tables.score_table import Entry, ScoreRow, ScoreTable
from normlab.studies.study import Scale, Study
from tests.records.examples import SIGNATURE, record

COLUMNS = ("test/bleu", "valid/loss")
_FALLS = ("loss", "_to/")


def study(**changes: Any) -> Study:
    rows = changes.get("rows", {norm: (f"norm={norm}",) for norm in ("ln", "bn", "gn")})
    values: dict[str, Any] = {
        "name": "norms",
        "description": "Norms.",
        "article": "article 1",
        "table": "Translation",
        "claims": (1,),
        "rows": rows,
        "grid": {},
        "columns": COLUMNS,
        "article_values": {},
        "scales": {"smoke": Scale((), (1, 2, 3), 0.5, "built in", tuple(rows), {})},
    }
    return Study(**{**values, **changes})


def made(norm: str, seed: int, scores: Mapping[str, float] = {}, **changes: Any) -> RunRecord:
    """Return the record of a run with these scores."""
    signature = changes.pop("signature", SIGNATURE)
    found = record(seed=seed, norm=norm, bleu=None, **changes)
    made = {
        name: Score(value, not any(part in name for part in _FALLS), 10, signature)
        for name, value in scores.items()
    }
    unsigned = {k: replace(score, signature=None) for k, score in made.items() if "bleu" not in k}
    return replace(found, scores=made | unsigned)


def run(record: RunRecord | None, row: str, seed: int = 1, point: str = "", **more: Any) -> Run:
    """Return a run at its place in a study."""
    return Run(Key(row, point, seed), record, **more)


def runs(figures: Mapping[str, list[float | None]], score: str = "test/bleu") -> list[Run]:
    """Return runs with these values for seeds 1, 2, ... None stands for a seed that was not run."""
    return [
        run(None if value is None else made(row, seed, {score: value}), row, seed)
        for row, values in figures.items()
        for seed, value in enumerate(values, 1)
    ]


def build(of: Study, table_runs: Sequence[Run]) -> ScoreTable:
    """Return the table of a study's runs at its smallest scale."""
    return build_table(study_arrangement(of, "smoke", table_runs))


BLEU = "test/bleu"


def table(values: Mapping[str, list[float | None]], **changes: Any) -> ScoreTable:
    """Return the table of a study given each row's values of BLEU for seeds 1, 2, ..."""
    return build(study(**changes), runs(values))


def row(of: ScoreTable, name: str, point: str = "") -> ScoreRow:
    return next(row for row in of.rows if (row.name, row.point) == (name, point))


def entry(of: ScoreTable, name: str) -> Entry:
    return row(of, name).entries[BLEU]


def note_of(of: ScoreTable, start: str) -> str:
    """Return the note that starts so; "" if there is none."""
    return "".join(note.text for note in of.notes if note.text.startswith(start))


_NOISE = (0.0, 0.2, 0.1, 0.3, 0.15, 0.05, 0.25, 0.1)


def noisy(*means: float, seeds: int = 5) -> dict[str, list[float | None]]:
    """Return values of rows whose differences vary: each row has the noise in its own order."""
    names = ("ln", "bn", "gn")
    return {
        name: [mean + _NOISE[(n * 3 + seed) % len(_NOISE)] for seed in range(seeds)]
        for n, (name, mean) in enumerate(zip(names, means, strict=False))
    }


_SPREAD = (0.0, 0.1, 0.2)
SIZES = {
    **{("ln", "8"): 30.0, ("bn", "8"): 28.0, ("ln", "32"): 30.0, ("bn", "32"): 28.5},
    **{("ln", "128"): 31.0, ("bn", "128"): 31.0},
}
"""Means by norm and batch size."""


def sweep(
    levels: Mapping[tuple[str, str], float],
    axis: str = "batch_size",
    *,
    seeds: int = 3,
    score: str = BLEU,
    column: tuple[str, ...] = (BLEU,),
    floor: float | None = None,
) -> ScoreTable:
    """Return a sweep's table from a mean per row and value, and the untrained baseline `floor`."""
    rows = {norm: (f"norm={norm}",) for norm, _ in levels}
    values = {value: (f"{axis}={value}",) for _, value in levels}
    floors = {} if floor is None else {score.split("/")[1]: floor}
    swept: list[Run] = []
    for (norm, value), level in levels.items():
        for n in range(seeds):
            spread = _SPREAD[n] * (1 + (norm == "bn"))
            record = replace(made(norm, n, {score: level + spread}), floors=floors)
            swept.append(run(record, norm, n, f"{axis}={value}"))
    return build(study(rows=rows, grid={axis: values}, columns=column), swept)


# Published studies, whose runs have rows --------------------------------------------------------

STEPS = range(10, 101, 10)


def sized(**changes: Any) -> Study:
    """Return a study over two batch sizes."""
    sizes = {size: (f"batch_size={size}",) for size in ("8", "32")}
    return study(grid={"batch_size": sizes}, **changes)


def run_rows(level: float, last: int = 100) -> list[dict[str, Any]]:
    """Return the rows of a run whose loss falls to a level, with a validation every 50 steps."""
    rows: list[dict[str, Any]] = []
    for step in (step for step in STEPS if step <= last):
        loss = level + math.exp(-step / 20)
        probes = {"stability/tid/mean": loss / 100, "stability/tid/mean/encoder.0": 1.0}
        trained = {"train/loss": loss, "train/grad_norm": 1 / step, "time/seconds": 0.1 * step}
        rows.append({"step": step, "tokens": 32 * step, **trained, **probes})
        if step % 50 == 0:
            rows.append({"step": step, "tokens": 32 * step, "valid/loss": loss, "valid/bleu": step})
    return rows


def kept_run(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Write the rows as a run does, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(plain(row)) + "\n" for row in rows))
    return folder


def diverged(record: RunRecord, step: int) -> RunRecord:
    outcome = Outcome("diverged", step, "loss is nan", "encoder.0")
    return replace(record, outcome=outcome, scores={})


def published(
    root: Path,
    of: Study,
    levels: Mapping[str, float],
    seeds: int = 2,
    norms: Mapping[str, str] = {},
) -> Path:
    """Publish a study whose rows reach these losses at each point, and return its page.

    `norms` gives the norms of rows other than layer norm. The last seed of `bn` at the first point
    diverges at step 45.
    """
    points = [f"batch_size={size}" for size in of.grid.get("batch_size", ())] or [""]
    found: list[Run] = []
    for seed in range(1, seeds + 1):
        for number, point in enumerate(points):
            for row, level in levels.items():
                reached = level + 0.1 * seed + 0.2 * number
                figures = {"test/bleu": 10 * reached, "valid/loss": reached}
                record = made(norms.get(row, "ln"), seed, figures, point=point, setting=row)
                rows = run_rows(reached)
                if row == "bn" and seed == seeds and number == 0:
                    record, rows = diverged(record, 45), run_rows(reached, 40)
                folder = kept_run(root / "runs" / str(len(found)), rows)
                found.append(run(record, row, seed, point, folder=folder))
    return publish(root / "results", of, "smoke", found) / PAGE_FILE
