"""Encoded documents on disk, and how runs of their tokens become rows of a batch.

Decides the layout beside `EncodedText`: where documents begin (`<stem>.documents.npy`), which
tokens begin a word (`<stem>.begins.npy`) and how long each sentence was (`<stem>.characters.npy`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normlab.data.encoded import EncodedText


@dataclass(frozen=True)
class EncodedDocuments:
    """One split: `text` holds the sentences of all documents in order, as ids without marks.

    Document d has the sentences `documents[d]:documents[d + 1]` (int64 [documents + 1]). `begins`
    (bool [tokens]) is True at the first token of a word, `characters` (int32 [sentences]) counts
    those of each sentence without the blank after it.
    """

    text: EncodedText
    documents: np.ndarray
    begins: np.ndarray
    characters: np.ndarray

    def __len__(self) -> int:
        """Return how many documents there are."""
        return len(self.documents) - 1

    @classmethod
    def joined(cls, parts: Sequence["EncodedDocuments"]) -> "EncodedDocuments":
        """Return the documents of all parts, one part after the other."""
        sentences = np.cumsum([0, *(len(part.text) for part in parts)])
        bounds = [part.documents[1:] + n for part, n in zip(parts, sentences, strict=False)]
        return cls(
            EncodedText.joined([part.text for part in parts]),
            documents=np.concatenate([np.zeros(1, np.int64), *bounds]),
            begins=np.concatenate([np.zeros(0, bool), *(part.begins for part in parts)]),
            characters=np.concatenate(
                [np.zeros(0, np.int32), *(part.characters for part in parts)]
            ),
        )

    def save(self, folder: Path, stem: str) -> None:
        """Write all arrays as `<stem>.<name>.npy`."""
        self.text.save(folder, stem)
        for name in ("documents", "begins", "characters"):
            np.save(folder / f"{stem}.{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path, stem: str) -> "EncodedDocuments":
        """Map what `save` wrote, read-only."""
        return cls(
            EncodedText.load(folder, stem),
            documents=np.load(folder / f"{stem}.documents.npy"),
            begins=np.load(folder / f"{stem}.begins.npy", mmap_mode="r"),
            characters=np.load(folder / f"{stem}.characters.npy", mmap_mode="r"),
        )


def copy_runs(
    out: np.ndarray, at: np.ndarray, source: np.ndarray, starts: np.ndarray, counts: np.ndarray
) -> None:
    """Set `out[i, at[i]:at[i] + counts[i]]` to `source[starts[i]:starts[i] + counts[i]]`.

    `out` is [rows, columns]; `at`, `starts` and `counts` are [rows].
    """
    rows = np.repeat(np.arange(len(out)), counts)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    out[rows, np.repeat(at, counts) + within] = source[np.repeat(starts, counts) + within]


def columns_in(shape: tuple[int, ...], at: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return bool `shape` [rows, columns], True at `at[i] <= column < at[i] + counts[i]`."""
    columns = np.arange(shape[1])
    return (columns >= at[:, None]) & (columns < (at + counts)[:, None])
