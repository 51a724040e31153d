"""Token ids as flat arrays in memory-mapped files, and padded batches of them."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


def append_arrays(folder: Path, stem: str, **arrays: np.ndarray) -> None:
    """Append each array, as bool or int32, to the file `<stem>.<name>` in a folder."""
    for name, array in arrays.items():
        with (folder / f"{stem}.{name}").open("ab") as file:
            file.write(array.astype(bool if array.dtype == bool else np.int32).tobytes())


def mapped(folder: Path, stem: str, name: str, kind: type[np.generic] = np.int32) -> np.ndarray:
    """Memory-map the file `<stem>.<name>` in a folder, copy-on-write."""
    return np.memmap(folder / f"{stem}.{name}", dtype=kind, mode="c")


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Return the cumulative sum of `counts`, preceded by 0, as int64 [parts + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def width_of(lengths: np.ndarray, padding: float) -> int:
    """Return the width of a padded batch of sequences with these lengths.

    It is the smallest width that fits all sequences and at which padding makes up at least a
    fraction `padding` of the batch.
    """
    width = lengths.sum() / (len(lengths) * (1 - padding)) - 1e-9
    return max(int(lengths.max(initial=0)), int(np.ceil(width)))


@dataclass(frozen=True)
class EncodedText:
    """Sentences as one flat array of token ids, without special tokens.

    Sentence i is `ids[offsets[i]:offsets[i + 1]]`.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_sentences(cls, sentences: Iterable[Iterable[int]]) -> "EncodedText":
        """Pack sentences, each an iterable of token ids."""
        parts = [np.fromiter(sentence, np.int32) for sentence in sentences]
        flat = np.concatenate([np.zeros(0, np.int32), *parts])
        return cls(flat, offsets_of(np.array([len(part) for part in parts], np.int64)))

    def append(self, folder: Path, stem: str) -> None:
        """Append the sentences to `<stem>.ids` and `<stem>.lengths`."""
        append_arrays(folder, stem, ids=self.ids, lengths=self.lengths)

    @classmethod
    def load(cls, folder: Path, stem: str) -> "EncodedText":
        """Memory-map the files written by `append`."""
        return cls(mapped(folder, stem, "ids"), offsets_of(mapped(folder, stem, "lengths")))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        """Return the ids of one sentence, int32 [length]."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def select(self, indices: np.ndarray) -> "EncodedText":
        """Return a packed copy of the sentences at `indices`."""
        counts = self.lengths[indices]
        return EncodedText(self.ids[ranges(self.offsets[indices], counts)], offsets_of(counts))

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each sentence, without special tokens, as int64 [n]."""
        return np.diff(self.offsets)

    def padded(
        self, indices: np.ndarray, *, pad_id: int, suffix: int, padding: float = 0.0
    ) -> Int[Tensor, "B W"]:
        """Return padded sentences, int64 [len(indices), W], each followed by the id `suffix`.

        Padding makes up at least a fraction `padding` of the positions.
        """
        starts = self.offsets[indices]
        counts = self.offsets[indices + 1] - starts
        out = np.full((len(indices), width_of(counts + 1, padding)), pad_id, np.int64)
        copy_spans(out, np.zeros_like(counts), self.ids, starts, counts)
        out[np.arange(len(indices)), counts] = suffix
        return torch.from_numpy(out)


@dataclass(frozen=True)
class EncodedPairs:
    """The sentence pairs of a split, as token ids."""

    source: EncodedText
    target: EncodedText

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> np.ndarray:
        """The number of source and target tokens per pair, with end marks, as int64 [n, 2]."""
        return np.stack([self.source.lengths, self.target.lengths], axis=1) + 1


@dataclass(frozen=True)
class EncodedDocuments:
    """The documents of a split, whose sentences `text` holds in order.

    Document d consists of the sentences `documents[d]:documents[d + 1]` (int64 [documents + 1]).
    `begins` (bool [tokens]) is True at the first token of a word. `characters` (int32 [sentences])
    is the length of each sentence in characters, without the space after it.
    """

    text: EncodedText
    documents: np.ndarray
    begins: np.ndarray
    characters: np.ndarray

    def __len__(self) -> int:
        return len(self.documents) - 1

    def append(self, folder: Path, stem: str) -> None:
        """Append the documents to the files of a split."""
        self.text.append(folder, stem)
        sizes = np.diff(self.documents)
        append_arrays(folder, stem, sizes=sizes, begins=self.begins, characters=self.characters)

    @classmethod
    def load(cls, folder: Path, stem: str) -> "EncodedDocuments":
        """Memory-map the files written by `append`."""
        return cls(
            EncodedText.load(folder, stem),
            documents=offsets_of(mapped(folder, stem, "sizes")),
            begins=mapped(folder, stem, "begins", np.bool_),
            characters=mapped(folder, stem, "characters"),
        )


def sentence_spans(
    documents: np.ndarray, offsets: np.ndarray, rooms: np.ndarray, *, least: int
) -> tuple[np.ndarray, ...]:
    """Cut documents into spans of sentences; return each span's document, first sentence and end.

    `documents` holds the index of each document's first sentence, and `offsets` that of each
    sentence's first token. Both end with the total number. Span i has at most `rooms[i]` tokens,
    unless the minimum of `least` sentences needs more. If a document has fewer than `least`
    sentences left, its last span starts at an earlier sentence.
    """
    places, limits = offsets.tolist(), rooms.tolist()
    cuts = list[tuple[int, int, int]]()
    for document, (begin, stop) in enumerate(pairwise(documents.tolist())):
        end = begin
        while end < stop:
            first = max(min(end, stop - least), begin)
            limit = places[first] + limits[len(cuts)]
            fits = bisect_right(places, limit, lo=first, hi=stop + 1) - 1
            end = min(max(fits, first + least), stop)
            cuts.append((document, first, end))
    return tuple(np.array(cuts, np.int64).reshape(-1, 3).T)


def copy_spans(
    out: np.ndarray, at: np.ndarray, source: np.ndarray, starts: np.ndarray, counts: np.ndarray
) -> None:
    """Set `out[i, at[i]:at[i] + counts[i]]` to `source[starts[i]:starts[i] + counts[i]]`.

    `out` is [rows, columns]; `at`, `starts` and `counts` are [rows].
    """
    rows = np.repeat(np.arange(len(out)), counts)
    out[rows, ranges(at, counts)] = source[ranges(starts, counts)]


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return `starts[i], ..., starts[i] + counts[i] - 1`, concatenated over i."""
    return np.arange(int(counts.sum())) + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def length_statistics(lengths: np.ndarray) -> dict[str, float]:
    """Return the mean, median, 95th percentile and maximum of lengths [n] in tokens."""
    median, p95, most = np.percentile(lengths, [50, 95, 100]).round(2).tolist()
    return {"mean": round(float(lengths.mean()), 2), "median": median, "p95": p95, "max": int(most)}
