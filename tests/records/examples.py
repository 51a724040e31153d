"""Records for tests of records, tables and lists."""

from typing import Any

from msgspec.structs import replace

from normlab.records.record import BudgetUsed, Outcome, RunRecord, Score, fingerprint
from normlab.records.store import run_id

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def config(*, seed: int = 1, norm: str = "ln", **changes: Any) -> dict[str, Any]:
    choices = {
        "norm": norm,
        "encoder_norm": norm,
        "decoder_norm": norm,
        "placement": "pre",
        "task": "toy",
        "model": "tiny",
        "scale": None,
        **changes.pop("choices", {}),
    }
    return {
        "seed": seed,
        "batch_size": 32,
        "max_tokens": None,
        "accumulate": 1,
        "norm": {"option": norm, "eps": 1e-5},
        "optim": {"lr": 5e-4},
        "task": {"corpus": {"size": 20000, "seed": 1}},
        "data_dir": None,
        "runs_dir": "runs",
        "observe": {"probe": {}, "every": 50},
        "choices": choices,
        **changes,
    }


def record(
    *,
    bleu: float | None = 30.0,
    status: Any = "finished",
    spikes: float = 0.0,
    signature: str | None = SIGNATURE,
    data: dict[str, Any] | None = None,
    environment: dict[str, Any] | None = None,
    params: int = 1000,
    numerics: int | str = 1,
    **changes: Any,
) -> RunRecord:
    values = config(**changes)
    scores = {} if bleu is None else {"test/bleu": Score(bleu, True, 1000, signature)}
    return RunRecord(
        run_id=run_id(values),
        fingerprint=fingerprint(values),
        numerics=numerics,
        seed=values["seed"],
        config=values,
        outcome=Outcome(status, 100),
        scores=scores,
        stability={"stability/spikes/count": spikes},
        budget=BudgetUsed(100, 50_000, 25.0, 2000.0, 0),
        environment={"precision": "fp32", "world_size": 1, **(environment or {})},
        data={"checksums": {"train": "abc"}, **(data or {})},
        params=params,
    )


def changed(record: RunRecord, **changes: Any) -> RunRecord:
    """Return a record with changed values and a matching fingerprint."""
    made = replace(record, **changes)
    return replace(made, fingerprint=fingerprint(made.config))
