"""fairseq's own training, from its command line on.

Its loop draws groups of batches from an iterator of its own, and there the turns are taken.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq.data import iterators
from fairseq_cli import preprocess, train

from peers.turns import Turns
from peers.work import Work, arguments


class PacedGroups(iterators.GroupedIterator):
    """Groups of batches (each of one) that wait for turns."""

    turns: Turns

    def __iter__(self) -> Iterator[Any]:
        return self.turns.paced(iter(self.__next__, None), counts)


def counts(group: list[dict[str, Any]]) -> dict[str, int]:
    """Return what batches of fairseq hold."""
    target_tokens = sum(batch["ntokens"] for batch in group)
    inputs = [batch["net_input"] for batch in group]
    positions = sum(given["src_tokens"].numel() for given in inputs)
    positions += sum(batch["target"].numel() for batch in group)
    real = target_tokens + sum(int(given["src_lengths"].sum()) for given in inputs)
    return {"target_tokens": target_tokens, "positions": positions, "padding": positions - real}


def prepare(work: Work, scratch: Path) -> Path:
    """Write the corpus as fairseq wants it and return the folder."""
    words, binary = scratch / "dict.txt", scratch / "binary"
    words.write_text("".join(f"{word} 1\n" for word in work.lines("vocab.txt")), "utf-8")
    sys.argv = [
        *("fairseq-preprocess", "--source-lang", "src", "--target-lang", "tgt"),
        *("--trainpref", str(work.folder / "train"), "--destdir", str(binary)),
        *("--srcdict", str(words), "--joined-dictionary", "--workers", "1"),
    ]
    preprocess.cli_main()
    return binary


def options(work: Work, scratch: Path, data: Path) -> list[str]:
    """Return the command line of `fairseq-train`."""
    sizes = {
        "encoder-embed-dim": work.dim,
        "encoder-ffn-embed-dim": work.ffn_dim,
        "encoder-attention-heads": work.num_heads,
        "encoder-layers": work.encoder_layers,
        "decoder-embed-dim": work.dim,
        "decoder-ffn-embed-dim": work.ffn_dim,
        "decoder-attention-heads": work.num_heads,
        "decoder-layers": work.decoder_layers,
        "dropout": work.dropout,
        "label-smoothing": work.label_smoothing,
        "max-tokens": work.max_tokens,
        "lr": work.learning_rate,
    }
    return [
        *("fairseq-train", str(data), "--source-lang", "src", "--target-lang", "tgt"),
        *("--arch", "transformer_iwslt_de_en", "--share-all-embeddings"),
        *("--criterion", "label_smoothed_cross_entropy", "--clip-norm", "0.0"),
        *("--optimizer", "adam", "--adam-betas", str(work.betas), "--lr-scheduler", "fixed"),
        *("--cpu", "--no-save", "--disable-validation", "--log-format", "none"),
        *("--num-workers", "0", "--save-dir", str(scratch)),
        *(part for name, value in sizes.items() for part in (f"--{name}", str(value))),
    ]


def main() -> None:
    """Train for as long as there are turns."""
    chosen = arguments("train with fairseq", precisions=["fp32"])
    torch.set_num_threads(1)
    PacedGroups.turns = Turns(
        packages=["fairseq-fixed", "torch"],
        differs=["its own batches, sorted by length over the whole corpus"],
    )
    data = prepare(chosen.work, chosen.scratch)
    sys.argv = options(chosen.work, chosen.scratch, data)
    iterators.GroupedIterator = PacedGroups
    train.cli_main()
    sys.exit("fairseq ended its training by itself")


if __name__ == "__main__":
    main()
