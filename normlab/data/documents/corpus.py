"""Documents as every source of them hands them over, and what is refused or left out.

Decides the common form (`Document`, `DocumentCorpus`), that a document stands in one split only,
which split it is where the source has none, and how a split is recognised (its checksum). Nothing
here knows of subwords or tensors.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

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

    A concrete corpus sets the attributes and `splits`. `name` is a short identifier, `label` what a
    table must call results on it, `licence` what its origin states, `language` its ISO 639 code.
    """

    name: str
    label: str
    licence: str
    language: str

    @abstractmethod
    def splits(self) -> dict[str, list[Document]]:
        """Return `train`, `valid` and `test`, and any further test set as `test_<name>`."""

    def left_out(self) -> dict[str, int]:
        """Return how many of what the reader left out on purpose; nothing unless overridden."""
        return {}

    def origin(self) -> str:
        """Return where the text comes from where no data_dir is given; reads nothing."""
        return "this installation carries it"

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


def check_splits(name: str, splits: Mapping[str, list[Document]]) -> None:
    """Raise ValueError for a split that is missing or empty and a sentence that cannot be one."""
    missing = [split for split in REQUIRED if split not in splits]
    if missing:
        raise ValueError(
            f"corpus {name} has no {' and no '.join(missing)} split (it has "
            f"{', '.join(splits) or 'none'}); give train, valid and test"
        )
    for split, documents in splits.items():
        if not documents:
            sizes = ", ".join(f"{other}: {len(found)}" for other, found in splits.items())
            raise ValueError(
                f"corpus {name}: the split {split} has no document (documents by split: {sizes}); "
                "give more documents, files of your own for each split, or another valid_share "
                "and test_share"
            )
        for document in documents:
            if not document.sentences:
                raise ValueError(f"{document.origin} ({split}) has no sentence")
            for number, sentence in enumerate(document.sentences, 1):
                if not sentence.strip() or "\n" in sentence:
                    raise ValueError(
                        f"{document.origin} ({split}), sentence {number}: blank, or with a line "
                        "break inside"
                    )


def distinct(
    splits: Mapping[str, list[Document]],
) -> tuple[dict[str, list[Document]], dict[str, int]]:
    """Keep each text once, in a test set before `valid` before `train`; return it and the counts.

    The counts say how many documents of each split were left out because the same sentences stand
    in a split of higher rank or earlier in their own.
    """
    seen: set[str] = set()
    kept: dict[str, list[Document]] = {}
    for split in sorted(splits, key=lambda name: (name == "train", name == "valid", name)):
        kept[split] = []
        for document in splits[split]:
            mark = hashlib.sha256(document.text.encode()).hexdigest()
            if mark not in seen:
                seen.add(mark)
                kept[split].append(document)
    repeated = {split: len(splits[split]) - len(kept[split]) for split in splits}
    return {split: kept[split] for split in splits}, repeated


def by_hash(
    documents: Iterable[Document],
    *,
    valid_share: float,
    test_share: float,
    of: str = "origin",
) -> dict[str, list[Document]]:
    """Split documents by a hash of their `origin` or of their `text`: no seed, no order.

    A document stays in its split whatever is added or removed; two of equal text, hashed by `text`,
    share one. Raises ValueError where the shares leave no training text.
    """
    if min(valid_share, test_share) <= 0 or valid_share + test_share >= 1:
        raise ValueError(
            f"valid_share={valid_share} and test_share={test_share} must be above 0 and sum to "
            "less than 1"
        )
    splits: dict[str, list[Document]] = {split: [] for split in REQUIRED}
    for document in documents:
        digest = hashlib.sha256(getattr(document, of).encode()).digest()
        place = int.from_bytes(digest[:8], "big") / 2**64
        held_out = "test" if place < test_share else "valid"
        splits[held_out if place < test_share + valid_share else "train"].append(document)
    return splits


def rules_digest(*modules: str) -> str:
    """Return a checksum of the source of modules of this package, which decide the text."""
    package = files("normlab.data.documents")
    digest = hashlib.sha256()
    for module in ("corpus", *modules):
        digest.update(package.joinpath(f"{module}.py").read_bytes())
    return digest.hexdigest()[:20]
