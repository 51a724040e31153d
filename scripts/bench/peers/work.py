"""What is measured: the sizes of the model and the files that all programs read.

Only the standard library: this file runs in the environment of every program.
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
        folder: holds `train.src`, `train.tgt` and the same of `valid` (a sentence a line, words
            separated by one space), `vocab.txt` (a word a line), `batches.jsonl` (normlab's
            training batches in their order) and `decode.txt` (the sentences to decode).
        model: `a` or `b`, the names of the table.
        max_tokens: of a batch: sentences times the longer side, end marks included.
        sentences: in a batch that is decoded.
        length: steps of every hypothesis.
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
        """Return normlab's training batches: the sentences of both sides of each."""
        return [tuple(json.loads(line)) for line in self.lines("batches.jsonl")]

    def decode_batches(self) -> list[list[str]]:
        """Return the sentences to decode, batch by batch."""
        lines, size = self.lines("decode.txt"), self.sentences
        return [lines[at : at + size] for at in range(0, len(lines), size)]


def token_counts(
    batch: tuple[Sequence[Sequence[object]], Sequence[Sequence[object]]],
) -> dict[str, int]:
    """Count a batch of source and target sentences, each with one end mark, padded to its longest.

    `target_tokens` are those in the loss.
    """
    real = [sum(len(sentence) for sentence in side) for side in batch]
    wide = [len(side) * max(len(sentence) for sentence in side) for side in batch]
    return {"target_tokens": real[1], "positions": sum(wide), "padding": sum(wide) - sum(real)}


def arguments(description: str, *, precisions: Sequence[str]) -> argparse.Namespace:
    """Parse the command line of a measured program: its `work`, its `precision`, a `scratch`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("work", type=lambda text: Work.load(Path(text)), help="folder of files")
    parser.add_argument("--kind", choices=["training", "decoding"], required=True)
    parser.add_argument("--precision", choices=precisions, default=precisions[0])
    parser.add_argument("--scratch", type=Path, required=True, help="a folder to write into")
    return parser.parse_args()
