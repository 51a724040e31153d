"""The work to measure: the sizes of the model and the files that all programs read.

It uses only the standard library, because it runs in every program's environment.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Work:
    """One model on one corpus, in files below `folder`.

    Attributes:
        folder: holds `train.src`, `train.tgt` and the same for `valid` (one sentence per line,
            words separated by one space), `vocab.txt` (one word per line), `batches.jsonl`
            (normlab's training batches in order) and `decode.txt` (the sentences to decode).
        model: `a` or `b`, as in the tables.
        max_tokens: batch size limit: sentences times the longer side, end marks included.
        sentences: number of sentences per decoded batch.
        length: number of steps of every hypothesis.
    """

    folder: Path
    model: str
    encoder_layers: int
    decoder_layers: int
    dim: int
    ffn_dim: int
    num_heads: int
    dropout: float
    label_smoothing: float
    learning_rate: float
    betas: tuple[float, float]
    max_tokens: int
    beam: int
    sentences: int
    length: int

    def save(self) -> None:
        """Write the sizes into the folder."""
        values = {name: value for name, value in asdict(self).items() if name != "folder"}
        (self.folder / "work.json").write_text(json.dumps(values, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Work":
        """Read what `save` wrote."""
        values = json.loads((folder / "work.json").read_text("utf-8"))
        values["betas"] = tuple(values["betas"])
        return cls(folder=folder, **values)

    def lines(self, name: str) -> list[str]:
        """Return the lines of one of the files."""
        return (self.folder / name).read_text("utf-8").splitlines()

    def batches(self) -> list[tuple[list[str], list[str]]]:
        """Return normlab's training batches: the sentences of both sides."""
        return [tuple(json.loads(line)) for line in self.lines("batches.jsonl")]

    def decode_batches(self) -> list[list[str]]:
        """Return the sentences to decode, batch by batch."""
        lines, size = self.lines("decode.txt"), self.sentences
        return [lines[at : at + size] for at in range(0, len(lines), size)]


def token_counts(
    batch: tuple[Sequence[Sequence[object]], Sequence[Sequence[object]]],
) -> dict[str, int]:
    """Count the tokens of a batch, each sentence with one end mark and padded to the longest.

    `target_tokens` is the number of tokens in the loss.
    """
    real = [sum(len(sentence) for sentence in side) for side in batch]
    wide = [len(side) * max(len(sentence) for sentence in side) for side in batch]
    return {"target_tokens": real[1], "positions": sum(wide), "padding": sum(wide) - sum(real)}


def arguments(description: str, *, precisions: Sequence[str]) -> argparse.Namespace:
    """Parse the command line of a measured program: `work`, `kind`, `precision`, `scratch`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "work", type=lambda text: Work.load(Path(text)), help="folder with the work's files"
    )
    parser.add_argument("--kind", choices=["training", "decoding"], required=True)
    parser.add_argument("--precision", choices=precisions, default=precisions[0])
    parser.add_argument("--scratch", type=Path, required=True, help="a folder for temporary files")
    return parser.parse_args()
