"""What is measured by default: model B of the peers' benchmark, on synthetic text.

Of `task=cifar10` without a `data_dir` it is pictures of noise in its size.
"""

from collections.abc import Sequence
from typing import Any

_TRANSLATION = [
    "model=small",
    "max_tokens=2048",
    "model.dropout=0.3",
    "task=translation",
    "data_dir=-",
]
_TEXT = ["model=bert_mini", "batch_size=32"]
_BY_TASK: dict[str | None, list[str]] = {
    "mlm": [*_TEXT, "task.short_share=0"],
    "lm": _TEXT,
    "cifar10": [],
    "digits": [],
}


def bench_config(overrides: Sequence[str], *, pairs: int | None = None) -> dict[str, Any]:
    """Return the plain config of a measured run: the small model on the synthetic corpus.

    `pairs` is the size of that corpus. A task among the overrides replaces it; of `mlm` it is
    BERT-Mini on full sequences, of `lm` a decoder of that size, of pictures the task's own model.
    """
    from normlab.config import compose, to_dict

    chosen = next((o.removeprefix("task=") for o in overrides if o.startswith("task=")), None)
    config = to_dict(compose([*_BY_TASK.get(chosen, _TRANSLATION), *overrides]))
    if chosen is None:
        size = {} if pairs is None else {"pairs": pairs}
        config["task"]["corpus"] = {"_target_": "normlab.bench.corpus.SyntheticCorpus", **size}
        config["choices"]["task"] = "synthetic"
    if chosen == "cifar10" and config["data_dir"] is None:
        config["task"]["source"] = {"_target_": "normlab.bench.pictures.SyntheticPictures"}
        config["choices"]["task"] = "noise"
    return config
