"""Documents as every source of them hands them over, and what is refused.

Decides the common form (`Document`, `DocumentCorpus`), which split a document is in where the
source has none, and how a split is recognised (its checksum). Nothing here knows of subwords or
tensors.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

REQUIRED = ("train", "valid", "test")


@dataclass(frozen=True)
class Document:
    """Sentences that follow one another; `origin` names the document, for messages and hashes."""

    origin: str
    sentences: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def text(self) -> str:
        """The sentences, each with a line break after it."""
        return "".join(sentence + "\n" for sentence in self.sentences)


class DocumentCorpus(ABC):
    """A source of documents.

    A concrete corpus sets the attributes and `splits`; one that may be larger than the memory has a
    `stream` and `split_names` of its own. `name` is a short identifier, `label` what a table must
    call results on it, `licence` what its origin states, `language` its ISO 639 code.
    """

    name: str
    label: str
    licence: str
    language: str

    @abstractmethod
    def splits(self) -> dict[str, list[Document]]:
        """Return `train`, `valid` and `test`, and any further test set as `test_<name>`."""

    def split_names(self) -> Sequence[str]:
        """Return the names of the splits."""
        return list(self.splits())

    def stream(self) -> Iterator[tuple[str, Document]]:
        """Yield each document with its split, one after the other.

        What two splits share is kept in the first that comes: test sets come before `valid`, that
        before `train`. Documents that a hash of their text tells apart may come in any order.
        """
        splits = self.splits()
        for split in by_rank(splits):
            for document in splits[split]:
                yield split, document

    def left_out(self) -> dict[str, int]:
        """Return how many of what the reader left out on purpose; nothing unless overridden."""
        return {}

    def origin(self) -> str:
        """Return where the text comes from without a data_dir; reads nothing."""
        return "built in"

    def key(self) -> str:
        """Return a string that changes whenever the text does; the cache of prepared data uses it.

        The default reads everything. Override it where a cheaper statement is as sure, such as the
        checksum of the files and the rules that cut them.
        """
        digest = hashlib.sha256()
        for split, documents in sorted(self.splits().items()):
            digest.update(f"{split} {checksum(documents)}\n".encode())
        return f"{self.name}-{digest.hexdigest()}"

    def describe(self) -> dict[str, object]:
        """Return plain values for the record: what the text is, its licence, what was left out."""
        return {
            "source": self.name,
            "label": self.label,
            "licence": self.licence,
            "language": self.language,
            "left_out": self.left_out(),
        }


def checksum(documents: Iterable[Document]) -> str:
    """Return the SHA-256 of documents as a file: a sentence a line, a blank line between two."""
    return hashlib.sha256("\n".join(document.text for document in documents).encode()).hexdigest()


def by_rank(splits: Iterable[str]) -> list[str]:
    """Return splits in the order in which a repeated document is kept: test sets, valid, train."""
    return sorted(splits, key=lambda name: (name == "train", name == "valid", name))


def in_order(splits: Iterable[str]) -> list[str]:
    """Return splits as they are listed: train, valid, test, further test sets."""
    names = list(splits)
    return [*(n for n in REQUIRED if n in names), *sorted(n for n in names if n not in REQUIRED)]


def collected(corpus: DocumentCorpus) -> dict[str, list[Document]]:
    """Return the splits of a corpus that streams, as lists."""
    splits: dict[str, list[Document]] = {name: [] for name in in_order(corpus.split_names())}
    for split, document in corpus.stream():
        splits[split].append(document)
    return splits


def check_names(name: str, splits: Sequence[str]) -> None:
    """Raise ValueError for a corpus without one of the splits that it needs."""
    missing = [split for split in REQUIRED if split not in splits]
    if missing:
        raise ValueError(
            f"corpus {name} has no {' and no '.join(missing)} split (it has "
            f"{', '.join(splits) or 'none'}); give train, valid and test"
        )


def check_sizes(name: str, sizes: Mapping[str, int]) -> None:
    """Raise ValueError for a split without a document."""
    for split, size in sizes.items():
        if not size:
            listed = ", ".join(f"{other}: {count}" for other, count in sizes.items())
            raise ValueError(
                f"corpus {name}: the split {split} has no document (documents by split: {listed}); "
                "give more documents, files of your own for each split, or another valid_share "
                "and test_share"
            )


def check_document(split: str, document: Document) -> None:
    """Raise ValueError for a document without a sentence and for a sentence that cannot be one."""
    if not document.sentences:
        raise ValueError(f"{document.origin} ({split}) has no sentence")
    for number, sentence in enumerate(document.sentences, 1):
        if not sentence.strip() or "\n" in sentence:
            raise ValueError(
                f"{document.origin} ({split}), sentence {number}: blank, or with a line "
                "break inside"
            )


def by_hash(
    documents: Iterable[Document], *, valid_share: float, test_share: float
) -> dict[str, list[Document]]:
    """Split documents by a hash of their `origin`: no seed, no order.

    A document stays in its split whatever is added or removed. Raises ValueError where the shares
    leave no training text.
    """
    splits: dict[str, list[Document]] = {split: [] for split in REQUIRED}
    for document in documents:
        split = split_by_hash(document.origin, valid_share=valid_share, test_share=test_share)
        splits[split].append(document)
    return splits


def split_by_hash(text: str, *, valid_share: float, test_share: float) -> str:
    """Return which of the three splits a hash of a text puts it in.

    Raises ValueError where the shares leave no training text.
    """
    if min(valid_share, test_share) <= 0 or valid_share + test_share >= 1:
        raise ValueError(
            f"valid_share={valid_share} and test_share={test_share} must be above 0 and sum to "
            "less than 1"
        )
    place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
    if place < test_share:
        return "test"
    return "valid" if place < test_share + valid_share else "train"


def update_digest(digest: "hashlib._Hash", path: Path) -> None:
    """Add the bytes of a file to a checksum, a part at a time."""
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)


def rules_digest(*modules: str) -> str:
    """Return a checksum of the source of modules of this package, which decide the text."""
    package = files("normlab.data.documents")
    digest = hashlib.sha256()
    for module in ("corpus", *modules):
        digest.update(package.joinpath(f"{module}.py").read_bytes())
    return digest.hexdigest()[:20]
