"""Documents as every corpus of them gives them, and how they are read from lines of text."""

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Literal

REQUIRED = ("train", "valid", "test")
TextForm = Literal["sentences", "paragraphs"]
"""What a line of text is: a sentence, or a paragraph whose sentences `sentencex` finds."""


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


class DocumentCorpus:
    """A source of documents.

    A concrete corpus sets the attributes and either `splits`, or `stream` and `split_names` where
    the text may be larger than the memory. `name` is a short identifier, `label` what a table must
    call results on it, `licence` what its origin states, `language` its ISO 639 code.
    """

    name: str
    label: str
    licence: str
    language: str

    def splits(self) -> dict[str, list[Document]]:
        """Return `train`, `valid` and `test`, and any further test set as `test_<name>`."""
        splits: dict[str, list[Document]] = {name: [] for name in in_order(self.split_names())}
        for split, document in self.stream():
            splits[split].append(document)
        return splits

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


def stream_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, gzip-packed where its name ends in `.gz`.

    Only LF (or CR LF) ends a line. Raises ValueError naming the file, and the line that is not
    UTF-8.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                ended = line.removesuffix(b"\n")
                whole = ended.removesuffix(b"\r") if ended != line else line
                yield whole.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file, for example "
            f"with: iconv -f ISO-8859-1 -t UTF-8"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"cannot read {path}: {error}; restore the file or download it again"
        ) from error
    if not number:
        raise ValueError(f"{path} is empty; give a file with one sentence a line")


def read_documents(
    lines: Iterable[str], *, form: TextForm, language: str, origin: str
) -> Iterator[Document]:
    """Yield the documents of lines, which blank lines separate.

    Each is named by `origin` and the number of its first line.
    """
    for number, block in blocks(lines):
        yield Document(f"{origin}, line {number}", tuple(_sentences(block, form, language)))


def whole_document(
    lines: Iterable[str], *, form: TextForm, language: str, origin: str
) -> Iterator[Document]:
    """Yield all lines as one document, or none where all are blank.

    Here a blank line ends a paragraph, and the lines of a paragraph that was wrapped are joined.
    """
    sentences: list[str] = []
    for _, block in blocks(lines):
        paragraph = block if form == "sentences" else [" ".join(block)]
        sentences.extend(_sentences(paragraph, form, language))
    if sentences:
        yield Document(origin, tuple(sentences))


def blocks(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines between blank lines, stripped, with the number of the first from 1."""
    block: list[str] = []
    number = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            block.append(line.strip())
        elif block:
            yield number - len(block), block
            block = []
    if block:
        yield number + 1 - len(block), block


def _sentences(lines: Iterable[str], form: TextForm, language: str) -> Iterator[str]:
    for line in lines:
        if form == "sentences":
            yield line
        else:
            yield from split_sentences(line, language=language)


def split_sentences(paragraph: str, *, language: str) -> list[str]:
    """Cut a paragraph, whose line breaks are spaces, into sentences without blanks at their ends.

    White space ends every sentence, so a name such as `os.Path` has no boundary. `language` is an
    ISO 639 code; for one that `sentencex` has no rules for, it uses those of a related language or
    of English.
    """
    from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

    sentences: list[str] = []
    begun = ""
    for piece in segment(language, " ".join(paragraph.split())):
        begun += piece
        if begun[-1:].isspace():
            sentences.append(begun.strip())
            begun = ""
    return [sentence for sentence in [*sentences, begun.strip()] if sentence]


def splitter() -> str:
    """Return name and version of the library that decides where sentences end."""
    return f"sentencex {version('sentencex')}"
