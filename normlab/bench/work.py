"""What is measured by default: model B of the peers' benchmark, on synthetic text."""

from collections.abc import Sequence
from typing import Any

_TRANSLATION = [
    "model=small",
    "max_tokens=2048",
    "model.dropout=0.3",
    "task=translation",
    "data_dir=-",
]
_TEXT = ["model=bert_mini", "batch_size=32", "task.short_share=0"]


def bench_config(overrides: Sequence[str], *, pairs: int | None = None) -> dict[str, Any]:
    """Return the plain config of a measured run: the small model on the synthetic corpus.

    `pairs` is the size of that corpus. A task among the overrides replaces it; of `mlm` it is
    BERT-Mini on full sequences.
    """
    from normlab.config import compose, to_dict

    chosen = next((o.removeprefix("task=") for o in overrides if o.startswith("task=")), None)
    base = _TEXT if chosen == "mlm" else _TRANSLATION
    config = to_dict(compose([*base, *overrides]))
    if chosen is None:
        size = {} if pairs is None else {"pairs": pairs}
        config["task"]["corpus"] = {"_target_": "normlab.bench.corpus.SyntheticCorpus", **size}
        config["choices"]["task"] = "synthetic"
    return config
