"""Runs for tests of sinks."""

from pathlib import Path
from typing import Any

from normlab.records.record import BudgetUsed, Outcome, RunRecord, Score
from normlab.train.sinks import RunInfo

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
CHOICES = {
    "norm": "bn",
    "encoder_norm": None,
    "decoder_norm": None,
    "placement": "pre",
    "task": "toy",
    "model": "tiny",
    "scale": "smoke",
}


def info(run_dir: Path, *, total_steps: int | None = 100, **changes: Any) -> RunInfo:
    values = {
        "run_dir": run_dir,
        "run_id": "toy-bn-pre-0123456789-seed1",
        "fingerprint": "0123456789",
        "config": {
            "seed": 1,
            "batch_size": 32,
            "max_tokens": None,
            "norm": {"option": "bn", "eps": 1e-5},
            "optim": {"lr": 5e-4},
            "choices": CHOICES,
            "observe": {"study": "norms"},
        },
        "choices": CHOICES,
        "total_steps": total_steps,
        **changes,
    }
    return RunInfo(**values)


def record(**changes: Any) -> RunRecord:
    values = {
        "run_id": "toy-bn-pre-0123456789-seed1",
        "seed": 1,
        "config": {},
        "outcome": Outcome("finished", 100),
        "scores": {"test/bleu": Score(23.456, True, 1000, SIGNATURE)},
        "stability": {"stability/spikes/count": 2.0},
        "budget": BudgetUsed(100, 123_456, 75.2, 1641.7, 0),
        "environment": {},
        "data": {},
        "params": 1234,
        "fingerprint": "0123456789",
        "numerics": 1,
        **changes,
    }
    return RunRecord(**values)


def scores(bleu: float, loss: float) -> dict[str, Score]:
    return {"valid/bleu": Score(bleu, True, 10, SIGNATURE), "valid/loss": Score(loss, False, 99)}
