"""JoeyNMT's own training, from its configuration file on.

Its loop draws batches from `make_iter` of its data set, and there the turns are taken.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import yaml
from joeynmt.config import load_config
from joeynmt.datasets import BaseDataset
from joeynmt.training import train
from torch.utils.data import DataLoader

from peers.turns import Turns
from peers.work import Work, arguments

_NEVER = 10**9
_SPECIALS = ["<unk>", "<pad>", "<s>", "</s>"]


class PacedLoader:
    """A data loader whose batches come while turns last."""

    def __init__(self, loader: DataLoader, turns: Turns):
        self._loader, self._turns = loader, turns

    def __iter__(self) -> Iterator[Any]:
        return self._turns.paced(self._loader, counts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def counts(batch: Any) -> dict[str, int]:
    """Return what a batch of JoeyNMT holds."""
    positions = batch.src.numel() + batch.trg.numel()
    real = int(batch.src_length.sum()) + batch.ntokens
    return {"target_tokens": batch.ntokens, "positions": positions, "padding": positions - real}


def config(work: Work, scratch: Path) -> dict[str, Any]:
    """Return JoeyNMT's configuration of the work."""
    vocabulary = scratch / "vocab.txt"
    vocabulary.write_text("\n".join([*_SPECIALS, *work.lines("vocab.txt")]) + "\n", "utf-8")
    side = {"level": "word", "voc_file": str(vocabulary), "max_length": -1}
    stack = {
        "type": "transformer",
        "num_heads": work.num_heads,
        "embeddings": {"embedding_dim": work.dim, "scale": True},
        "hidden_size": work.dim,
        "ff_size": work.ffn_dim,
        "dropout": work.dropout,
        "layer_norm": "post",
        "activation": "relu",
    }
    return {
        "name": "peer",
        "model_dir": str(scratch / "model"),
        "use_cuda": False,
        "data": {
            "train": str(work.folder / "train"),
            "dev": str(work.folder / "valid"),
            "dataset_type": "plain",
            "src": {"lang": "src", **side},
            "trg": {"lang": "tgt", **side},
        },
        "training": {
            "optimizer": "adamw",
            "adam_betas": list(work.betas),
            "learning_rate": work.learning_rate,
            "learning_rate_min": 0.0,
            "scheduling": "noam",
            "label_smoothing": work.label_smoothing,
            "normalization": "tokens",
            "batch_type": "token",
            "batch_size": work.max_tokens,
            "epochs": _NEVER,
            "validation_freq": _NEVER // 100 * 100,
            "logging_freq": 100,
        },
        "testing": {"beam_size": 1},
        "model": {
            "initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": {**stack, "num_layers": work.encoder_layers},
            "decoder": {**stack, "num_layers": work.decoder_layers},
        },
    }


def paced(make_iter: Callable[..., DataLoader], turns: Turns) -> Callable[..., PacedLoader]:
    """Return a `make_iter` whose loaders wait for turns."""
    return lambda *given, **named: PacedLoader(make_iter(*given, **named), turns)


def main() -> None:
    """Train for as long as there are turns."""
    chosen = arguments("train with JoeyNMT", precisions=["fp32"])
    torch.set_num_threads(1)
    turns = Turns(
        packages=["joeynmt", "torch"],
        differs=[
            "its own batches: it cannot sort by length",
            "dropout also on attention weights and inside the feed-forward layer",
        ],
    )
    (chosen.scratch / "model").mkdir(parents=True, exist_ok=True)
    written = chosen.scratch / "config.yaml"
    written.write_text(yaml.safe_dump(config(chosen.work, chosen.scratch)), "utf-8")
    BaseDataset.make_iter = paced(BaseDataset.make_iter, turns)
    train(rank=0, world_size=None, cfg=load_config(written), skip_test=True)
    sys.exit("JoeyNMT ended its training by itself")


if __name__ == "__main__":
    main()
