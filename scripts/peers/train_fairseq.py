"""fairseq's own training, the main function of `fairseq-train`, on its raw text data set.

Its loop draws batches from a `GroupedIterator`, and there the turns are taken.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import options
from fairseq.data import iterators
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import train
from omegaconf import DictConfig

from peers.turns import Turns
from peers.work import Work, arguments

PRECISIONS = ["fp32", "oneDNN fp32"]
_ROUNDED = 1e-4  # of the largest value: far above what fp32 leaves, far below what bf16 does


def counts(samples: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return what a step of fairseq holds: its decoder is given as many places as it predicts."""
    totals = {"target_tokens": 0, "positions": 0, "padding": 0}
    for sample in samples:
        positions = sample["net_input"]["src_tokens"].numel() + sample["target"].numel()
        real = int(sample["net_input"]["src_lengths"].sum()) + sample["ntokens"]
        totals["target_tokens"] += sample["ntokens"]
        totals["positions"] += positions
        totals["padding"] += positions - real
    return totals


def paced(groups: type[iterators.GroupedIterator], turns: Turns) -> type[Any]:
    """Return fairseq's iterator over the batches of steps, as one that waits for turns."""

    class PacedGroups(groups):
        def __init__(self, *given: Any, **named: Any):
            super().__init__(*given, **named)
            self._itr = turns.paced(self._itr, counts)

    return PacedGroups


def config(work: Work, scratch: Path) -> DictConfig:
    """Return fairseq's configuration of the work, with its data in `scratch`."""
    data = scratch / "data"
    data.mkdir(parents=True, exist_ok=True)
    vocabulary = "".join(f"{word} 1\n" for word in work.lines("vocab.txt"))
    for side in ("src", "tgt"):
        (data / f"dict.{side}.txt").write_text(vocabulary, "utf-8")
        (data / f"train.src-tgt.{side}").symlink_to(work.folder.resolve() / f"train.{side}")
    values = {
        "task": "translation",
        "source-lang": "src",
        "target-lang": "tgt",
        "dataset-impl": "raw",
        "arch": "transformer",
        "activation-fn": "relu",
        "dropout": work.dropout,
        "attention-dropout": 0.0,
        "activation-dropout": 0.0,
        "criterion": "label_smoothed_cross_entropy",
        "label-smoothing": work.label_smoothing,
        "optimizer": "adam",
        "adam-betas": work.betas,
        "lr-scheduler": "fixed",
        "lr": work.learning_rate,
        "clip-norm": 0.0,
        "max-tokens": work.max_tokens,
        "required-batch-size-multiple": 1,
        # Loading is part of the time: no process and no thread of its own.
        "num-workers": 0,
        "data-buffer-size": 0,
        "log-format": "simple",
        "log-interval": 100,
        "save-dir": scratch / "model",
        "seed": 1,
    }
    for side, layers in (("encoder", work.encoder_layers), ("decoder", work.decoder_layers)):
        values[f"{side}-layers"] = layers
        values[f"{side}-embed-dim"] = work.dim
        values[f"{side}-ffn-embed-dim"] = work.ffn_dim
        values[f"{side}-attention-heads"] = work.num_heads
    given = [f"--{name}={value}" for name, value in values.items()]
    given += ["--share-all-embeddings", "--cpu", "--disable-validation", "--no-save"]
    parser = options.get_training_parser()
    chosen = options.parse_args_and_arch(parser, input_args=[str(data), *given])
    return convert_namespace_to_omegaconf(chosen)


def multiply_by_onednn() -> None:
    """Let oneDNN instead of MKL multiply fp32, unless it rounds to bf16 on this processor."""
    torch.set_float32_matmul_precision("medium")
    matrix = torch.arange(256.0 * 256).sin().view(256, 256)
    exact = matrix.double() @ matrix.double()
    if (matrix @ matrix - exact).abs().max() > _ROUNDED * exact.abs().max():
        raise ValueError("oneDNN multiplies fp32 in bf16 on this processor")


def main() -> None:
    """Train for as long as there are turns."""
    chosen = arguments("train with fairseq", precisions=PRECISIONS)
    torch.set_num_threads(1)
    differs = ["its own batches, sorted by length over the whole corpus"]
    if chosen.precision == "oneDNN fp32":
        multiply_by_onednn()
        differs.append("products by oneDNN, where torch takes MKL unless told otherwise")
    turns = Turns(packages=["fairseq-fixed", "torch"], differs=differs)
    train.iterators.GroupedIterator = paced(iterators.GroupedIterator, turns)
    train.main(config(chosen.work, chosen.scratch))
    sys.exit("fairseq ended its training by itself")


if __name__ == "__main__":
    main()
