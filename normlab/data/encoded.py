"""Token ids on disk: one flat array and the offsets of its sentences, mapped, not read.

Decides the layout (`<stem>.ids.npy` int32, `<stem>.offsets.npy` int64), and how sentences become a
padded array.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class EncodedText:
    """Sentences as ids without special tokens; sentence i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_sentences(cls, sentences: Sequence[Sequence[int]]) -> "EncodedText":
        """Pack lists of ids."""
        counts = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
        flat = np.fromiter(chain.from_iterable(sentences), dtype=np.int32, count=int(counts.sum()))
        return cls(flat, _offsets(counts))

    @classmethod
    def joined(cls, parts: Sequence["EncodedText"]) -> "EncodedText":
        """Return the sentences of all parts, one part after the other."""
        ids = np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)])
        counts = np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)])
        return cls(ids, _offsets(counts))

    def save(self, folder: Path, stem: str) -> None:
        """Write the two arrays as `<stem>.ids.npy` and `<stem>.offsets.npy`."""
        np.save(folder / f"{stem}.ids.npy", self.ids)
        np.save(folder / f"{stem}.offsets.npy", self.offsets)

    @classmethod
    def load(cls, folder: Path, stem: str) -> "EncodedText":
        """Map what `save` wrote, read-only."""
        ids = np.load(folder / f"{stem}.ids.npy", mmap_mode="r")
        return cls(ids, np.load(folder / f"{stem}.offsets.npy"))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        """Return the ids of one sentence, int32 [length]."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def select(self, indices: np.ndarray) -> "EncodedText":
        """Return the sentences of `indices`, packed anew."""
        counts = self.counts(indices)
        return EncodedText(self.ids[self._places(indices, counts)], _offsets(counts))

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of every sentence without special tokens, int64 [n]."""
        return np.diff(self.offsets)

    def counts(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of some sentences without special tokens, int64 [len(indices)]."""
        return self.offsets[indices + 1] - self.offsets[indices]

    def padded(
        self,
        indices: np.ndarray,
        *,
        pad_id: int,
        prefix: int | None = None,
        suffix: int | None = None,
    ) -> np.ndarray:
        """Return int64 [len(indices), longest], each with `prefix` before and `suffix` after it."""
        counts = self.counts(indices)
        before, after = int(prefix is not None), int(suffix is not None)
        width = int(counts.max(initial=0)) + before + after
        out = np.full((len(indices), width), pad_id, dtype=np.int64)
        columns = np.arange(width)
        inside = (columns >= before) & (columns < before + counts[:, None])
        # Row-major order of `inside` is the order of the concatenated sentences.
        out[inside] = self.ids[self._places(indices, counts)]
        if prefix is not None:
            out[:, 0] = prefix
        if suffix is not None:
            out[np.arange(len(indices)), counts + before] = suffix
        return out

    def _places(self, indices: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return where the ids of the sentences `indices` stand, which have `counts` each."""
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(self.offsets[indices], counts) + within


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


@dataclass(frozen=True)
class EncodedPairs:
    """The two sides of a split as token ids."""

    source: EncodedText
    target: EncodedText

    def __post_init__(self) -> None:
        assert len(self.source) == len(self.target)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of (source, target) with the end mark, as a model sees them: int64 [n, 2]."""
        return np.stack([self.source.lengths, self.target.lengths], axis=1) + 1
