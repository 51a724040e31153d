"""eole's own training, from its configuration on.

Its trainer is given an iterator over batches, and there the turns are taken.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import eole.train_single
import torch
from eole.config.run import TrainConfig
from eole.constants import CorpusTask

from peers.turns import Turns
from peers.work import Work, arguments

_NEVER = 10**9
_SPECIALS = ["<unk>", "<blank>", "<s>", "</s>"]


def config(work: Work, scratch: Path, *, precision: str, steps: int = _NEVER) -> TrainConfig:
    """Return eole's configuration of the work; after `steps` the model is saved."""
    scratch.mkdir(parents=True, exist_ok=True)
    vocabulary = scratch / "vocab.txt"
    vocabulary.write_text("\n".join([*_SPECIALS, *work.lines("vocab.txt")]) + "\n", "utf-8")
    texts = {"path_src": str(work.folder / "train.src"), "path_tgt": str(work.folder / "train.tgt")}
    return TrainConfig(
        seed=1,
        save_data=str(scratch / "data"),
        overwrite=True,
        src_vocab=str(vocabulary),
        tgt_vocab=str(vocabulary),
        share_vocab=True,
        data={"train": texts},
        transforms=[],
        report_every=100,
        model={
            "architecture": "transformer",
            "hidden_size": work.dim,
            "transformer_ff": work.ffn_dim,
            "heads": work.num_heads,
            "encoder": {"encoder_type": "transformer", "layers": work.encoder_layers},
            "decoder": {"decoder_type": "transformer", "layers": work.decoder_layers},
            "embeddings": {
                "word_vec_size": work.dim,
                "position_encoding_type": "SinusoidalInterleaved",
            },
            "add_qkvbias": True,
            "add_final_linear_bias": True,
            "add_ffnbias": True,
            "mlp_activation_fn": "relu",
            "share_embeddings": True,
            "share_decoder_embeddings": True,
        },
        training={
            "world_size": 1,
            "gpu_ranks": [],
            "compute_dtype": precision,
            "model_path": str(scratch / "model"),
            "train_steps": steps,
            "save_checkpoint_steps": steps,
            "valid_steps": _NEVER,
            "batch_type": "tokens",
            "batch_size": work.max_tokens,
            "batch_size_multiple": 1,
            "bucket_size": len(work.lines("train.src")),
            "num_workers": 0,
            "accum_count": [1],
            "normalization": "tokens",
            "optim": "adamw",
            "learning_rate": work.learning_rate,
            "adam_beta1": work.betas[0],
            "adam_beta2": work.betas[1],
            "decay_method": "none",
            "max_grad_norm": 0,
            "dropout": [work.dropout],
            "attention_dropout": [0.0],
            "label_smoothing": work.label_smoothing,
        },
    )


def counts(item: tuple[dict[str, Any], int]) -> dict[str, int]:
    """Return what a batch of eole holds: the target begins with a mark that is not predicted."""
    batch, _ = item
    sentences = len(batch["tgt"])
    target_tokens = int(batch["tgtlen"].sum()) - sentences
    positions = batch["src"].numel() + batch["tgt"].numel() - sentences
    real = int(batch["srclen"].sum()) + target_tokens
    return {"target_tokens": target_tokens, "positions": positions, "padding": positions - real}


class PacedIterator:
    """An iterator over batches that waits for turns."""

    def __init__(self, batches: Any, turns: Turns):
        self._batches, self._turns = batches, turns

    def __iter__(self) -> Iterator[Any]:
        return self._turns.paced(self._batches, counts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def paced(build: Callable[..., Any], turns: Turns) -> Callable[..., Any]:
    """Return a maker of iterators of which that of training waits for turns."""

    def build_paced(*given: Any, task: CorpusTask, **named: Any) -> Any:
        batches = build(*given, task=task, **named)
        return PacedIterator(batches, turns) if task == CorpusTask.TRAIN else batches

    return build_paced


def main() -> None:
    """Train for as long as there are turns."""
    chosen = arguments("train with eole", precisions=["fp32", "bf16"])
    torch.set_num_threads(1)
    turns = Turns(
        packages=["eole", "torch"],
        differs=[
            "pre-norm",
            "its own batches, sorted by length over the whole corpus",
            "dropout also inside the feed-forward layer",
            "the source has no end mark",
        ],
    )
    module = eole.train_single
    module.build_dynamic_dataset_iter = paced(module.build_dynamic_dataset_iter, turns)
    module.main(config(chosen.work, chosen.scratch, precision=chosen.precision), device_id=-1)
    sys.exit("eole ended its training by itself")


if __name__ == "__main__":
    main()
