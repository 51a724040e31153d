"""Documents as token ids in memory-mapped files, and runs of their tokens as rows of a batch."""

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

    def append(self, folder: Path, stem: str) -> None:
        """Add the documents to the files `<stem>.<name>` of a folder, which need not exist."""
        arrays = {
            "ids": self.text.ids.astype(np.int32),
            "begins": self.begins.astype(bool),
            "lengths": self.text.lengths.astype(np.int32),
            "characters": self.characters.astype(np.int32),
            "sizes": np.diff(self.documents).astype(np.int32),
        }
        for name, array in arrays.items():
            with (folder / f"{stem}.{name}").open("ab") as file:
                file.write(array.tobytes())

    @classmethod
    def load(cls, folder: Path, stem: str) -> "EncodedDocuments":
        """Map what `append` wrote, read-only."""

        def mapped(name: str, kind: type[np.generic]) -> np.ndarray:
            return np.memmap(folder / f"{stem}.{name}", dtype=kind, mode="r")

        return cls(
            EncodedText(mapped("ids", np.int32), ends(mapped("lengths", np.int32))),
            documents=ends(mapped("sizes", np.int32)),
            begins=mapped("begins", np.bool_),
            characters=mapped("characters", np.int32),
        )


def ends(counts: np.ndarray) -> np.ndarray:
    """Return where each of consecutive parts ends, after a 0: int64 [parts + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


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
