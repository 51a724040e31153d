"""Runs for tests of sinks."""

from pathlib import Path
from typing import Any

from normlab.records.record import BudgetUsed, Outcome, RunRecord, Score
from normlab.training.sinks import RunInfo

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
CHOICES = {
    **{"norm": "bn", "encoder_norm": None, "decoder_norm": None, "placement": "pre"},
    **{"task": "toy", "model": "tiny", "scale": "smoke"},
}
CONFIG = {
    "seed": 1,
    "batch_size": 32,
    "max_tokens": None,
    "norm": {"option": "bn", "eps": 1e-5},
    "optim": {"lr": 5e-4},
    "choices": CHOICES,
    "budget": {"steps": 100},
    "observe": {"study": "norms"},
}
FINGERPRINT = RunInfo(Path(), CONFIG).fingerprint
RUN_ID = f"toy-bn-pre-{FINGERPRINT}-seed1"


def info(run_dir: Path, *, config: dict[str, Any] = CONFIG, **changes: Any) -> RunInfo:
    return RunInfo(run_dir, config, **changes)


def record(**changes: Any) -> RunRecord:
    values = {
        "run_id": RUN_ID,
        "seed": 1,
        "config": {},
        "outcome": Outcome("finished", 100),
        "scores": {"test/bleu": Score(23.456, True, 1000, SIGNATURE)},
        "stability": {"stability/spikes/count": 2.0},
        "budget": BudgetUsed(100, 123_456, 75.2, 1641.7, 0),
        "environment": {},
        "data": {},
        "params": 1234,
        "fingerprint": FINGERPRINT,
        "numerics": 1,
        **changes,
    }
    return RunRecord(**values)


def scores(bleu: float, loss: float) -> dict[str, Score]:
    return {"valid/bleu": Score(bleu, True, 10, SIGNATURE), "valid/loss": Score(loss, False, 99)}
