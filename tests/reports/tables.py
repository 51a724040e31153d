"""A study and its runs for tests of tables."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from normlab.records.record import RunRecord, Score
from normlab.studies import Planned, Scale, Study
from tests.records.examples import SIGNATURE, record

COLUMNS = ("test/bleu", "valid/loss")
_FALLS = ("loss", "_to/")


def study(**changes: Any) -> Study:
    rows = {"ln": ("norm=ln",), "bn": ("norm=bn",), "gn": ("norm=gn",)}
    values: dict[str, Any] = {
        "name": "norms",
        "description": "Norms.",
        "document": "D0",
        "table": "Translation",
        "claims": (1,),
        "rows": rows,
        "grid": {},
        "columns": COLUMNS,
        "figures": {},
        "scales": {"smoke": Scale((), (1, 2, 3), 0.5, "built in", tuple(rows), {})},
    }
    return Study(**{**values, **changes})


def made(norm: str, seed: int, scores: Mapping[str, float] = {}, **changes: Any) -> RunRecord:
    """Return the record of a run with these scores."""
    signature = changes.pop("signature", SIGNATURE)
    found = record(seed=seed, norm=norm, bleu=None, **changes)
    return replace(
        found,
        scores={
            name: Score(value, not any(part in name for part in _FALLS), 10, _of(name, signature))
            for name, value in scores.items()
        },
    )


def _of(name: str, signature: str | None) -> str | None:
    return signature if "bleu" in name else None


def planned(row: str, seed: int, point: str = "") -> Planned:
    return Planned(row, point, seed, ())


Runs = list[tuple[Planned, RunRecord | None]]


def runs(figures: Mapping[str, list[float | None]], score: str = "test/bleu") -> Runs:
    """Return runs by the values of their seeds, 1 and on; None for a seed that was not run."""
    return [
        (planned(row, seed), None if value is None else made(row, seed, {score: value}))
        for row, values in figures.items()
        for seed, value in enumerate(values, 1)
    ]
