"""The first pass over a corpus: each document once, split by split, as text on disk.

A corpus may be larger than the memory, and reading it may mean a network and a search for the ends
of sentences: it is read once. What is kept in memory is a hash of each document (8 bytes), and the
sentences that the vocabulary is learnt from, at most `SAMPLE_CHARACTERS`.
"""

import hashlib
import heapq
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from normlab.data.documents.corpus import (
    Document,
    DocumentCorpus,
    check_document,
    check_names,
    check_sizes,
    in_order,
)

SAMPLE_CHARACTERS = 100_000_000
_RECENT = 100_000  # marks that are in a set of Python's before they become an array


@dataclass(frozen=True)
class Spooled:
    """What is known of the text of one split; `checksum` is that of the file (see `checksum`)."""

    path: Path
    documents: int
    repeated: int
    characters: int
    bytes: int
    words: int
    checksum: str

    def read(self) -> Iterator[Document]:
        """Yield the documents of the file."""
        sentences: list[str] = []
        with self.path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                if line == "\n":
                    yield Document(self.path.stem, tuple(sentences))
                    sentences = []
                else:
                    sentences.append(line[:-1])
        if sentences:
            yield Document(self.path.stem, tuple(sentences))


class Seen:
    """Which texts have come before, by 64 bits of a hash: 8 bytes each.

    Of 400 million documents one is taken for another once in 200 times, and left out.
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted: list[np.ndarray] = []  # each at least as long as all that follow

    def add(self, mark: int) -> bool:
        """Take in a mark; return whether it is new."""
        if mark in self._recent or any(_holds(marks, mark) for marks in self._sorted):
            return False
        self._recent.add(mark)
        if len(self._recent) == _RECENT:
            self._settle()
        return True

    def _settle(self) -> None:
        marks = np.fromiter(self._recent, np.uint64, count=len(self._recent))
        self._recent = set()
        while self._sorted and len(self._sorted[-1]) <= len(marks):
            marks = np.concatenate([self._sorted.pop(), marks])
        self._sorted.append(np.sort(marks))


def _holds(marks: np.ndarray, mark: int) -> bool:
    place = int(np.searchsorted(marks, np.uint64(mark)))
    return place < len(marks) and int(marks[place]) == mark


class Sample:
    """Documents to learn a vocabulary from: all, or as many as have `limit` characters.

    These are the ones with the smallest marks, so which they are does not depend on the order.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._characters = 0
        self._kept: list[tuple[int, int, tuple[str, ...]]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, document: Document, mark: int) -> None:
        """Take in a document, and drop those that are too many."""
        self._count += 1
        heapq.heappush(self._kept, (-mark, self._count, document.sentences))
        self._characters += sum(map(len, document.sentences))
        while self._characters > self._limit and len(self._kept) > 1:
            _, _, dropped = heapq.heappop(self._kept)
            self._characters -= sum(map(len, dropped))

    def sentences(self) -> list[str]:
        """Return the sentences in the order in which they came."""
        in_order = sorted(self._kept, key=lambda kept: kept[1])
        return [sentence for _, _, sentences in in_order for sentence in sentences]


class _Writer:
    """Writes one split: the file whose bytes `checksum` hashes, and its counts."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self._file = path, file
        self._digest = hashlib.sha256()
        self.documents = self.repeated = self.characters = self.bytes = self.words = 0

    def add(self, text: str) -> None:
        data = text.encode()
        whole = b"\n" + data if self.documents else data
        self._digest.update(whole)
        self._file.write(whole)
        self.documents += 1
        self.characters += len(text)
        self.bytes += len(data)
        self.words += len(text.split())

    def result(self) -> Spooled:
        counts = ("documents", "repeated", "characters", "bytes", "words")
        return Spooled(
            self.path,
            checksum=self._digest.hexdigest(),
            **{name: getattr(self, name) for name in counts},
        )


def spool(
    corpus: DocumentCorpus, folder: Path, *, sample_characters: int = SAMPLE_CHARACTERS
) -> tuple[dict[str, Spooled], Sample]:
    """Write the documents of a corpus to `<split>.txt` and return what they are, and a sample.

    A text that has come before, in a split of higher rank or in its own, is left out and counted.
    Raises ValueError for a split that is missing or empty and for a document that cannot be one.
    """
    names = in_order(corpus.split_names())
    check_names(corpus.name, names)
    seen, sample = Seen(), Sample(sample_characters)
    with ExitStack() as stack:
        writers = {
            name: _Writer(path, stack.enter_context(path.open("wb")))
            for name, path in ((name, folder / f"{name}.txt") for name in names)
        }
        for split, document in corpus.stream():
            check_document(split, document)
            text = document.text
            digest = hashlib.sha256(text.encode()).digest()
            if not seen.add(int.from_bytes(digest[:8], "big")):
                writers[split].repeated += 1
                continue
            writers[split].add(text)
            if split == "train":
                # The first bits may have decided the split: see `split_by_hash`.
                sample.add(document, int.from_bytes(digest[8:16], "big"))
    spooled = {name: writer.result() for name, writer in writers.items()}
    check_sizes(corpus.name, {name: text.documents for name, text in spooled.items()})
    return spooled, sample
