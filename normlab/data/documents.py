"""Documents: what a corpus of them is, how lines become documents, and files of the user's own."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from normlab.data.cache import file_checksum
from normlab.data.corpus import REQUIRED, Source, stream_lines

RULES = "normlab.text/1"
"""Of how text is cut: raise it when the same files or the same Python give other documents."""
TextForm = Literal["sentences", "paragraphs"]
"""What a line of text is: a sentence, or a paragraph whose sentences `sentencex` finds."""
Boundary = Literal["blank_line", "file"]


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


class DocumentCorpus(Source):
    """A source of documents in one `language` (its ISO 639 code).

    A concrete corpus sets the attributes and either `splits`, or `stream` where the text may be
    larger than the memory.
    """

    language: str

    def splits(self) -> dict[str, list[Document]]:
        """Return `train`, `valid` and `test`, and any further test set as `test_<name>`."""
        splits: dict[str, list[Document]] = {split: [] for split in REQUIRED}
        for split, document in self.stream():
            splits.setdefault(split, []).append(document)
        return splits

    def stream(self) -> Iterator[tuple[str, Document]]:
        """Yield each document with its split, one after the other.

        Of equal documents the first one is kept: test sets come before `valid`, that before
        `train`. Documents whose split is a hash of their text may come in any order.
        """
        for split, documents in by_rank(self.splits()):
            for document in documents:
                yield split, document

    def left_out(self) -> dict[str, int]:
        """Return how many of what the reader left out on purpose; nothing unless overridden."""
        return {}

    def key(self) -> str:
        digest = hashlib.sha256()
        for split, documents in sorted(self.splits().items()):
            digest.update("\n".join([split, *(document.text for document in documents)]).encode())
        return f"{self.name}-{digest.hexdigest()}"

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "language": self.language, "left_out": self.left_out()}


def by_rank(splits: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return splits in the order in which a repeated document is kept: test sets, valid, train."""
    return sorted(splits.items(), key=lambda x: (x[0] == "train", x[0] == "valid", x[0]))


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


class CutDocuments(DocumentCorpus):
    """Documents that are cut out of lines, and into splits, by the settings of the user.

    `form` says what a line is: a sentence, or a paragraph whose sentences are found by rules for
    `language`. Text without splits has about `valid_share` and `test_share` of its documents held
    out by a hash of their text, equal documents together. `name` is part of the experiment: runs on
    two texts of one name would be taken for the same.
    """

    form: TextForm

    def __init__(
        self, name: str, form: TextForm, language: str, *, valid_share: float, test_share: float
    ) -> None:
        self.name, self.form, self.language = name, form, language
        self.shares = {"valid_share": valid_share, "test_share": test_share}

    def describe(self) -> dict[str, object]:
        by = "lines" if self.form == "sentences" else splitter()
        return {**super().describe(), "form": self.form, "sentences_by": by}


class FolderDocuments(CutDocuments):
    """Text of the user's own, UTF-8, plain or `.gz`.

    `data_dir` is a text file, or a folder with `train.txt`, `valid.txt`, `test.txt` (and further
    `test_<name>.txt`), or a folder of other `.txt` files, without splits. A folder
    `data_dir/<name>` goes first. `boundary` says what ends a document: a blank line, or the file
    alone; then a blank line ends a paragraph, whose lines are joined.
    """

    licence = "as stated by the owner of the text"

    def __init__(
        self,
        data_dir: str | None,
        *,
        form: TextForm,
        boundary: Boundary,
        language: str,
        valid_share: float,
        test_share: float,
        name: str = "documents",
    ) -> None:
        if data_dir is None:
            raise ValueError(
                "this task reads your own text: set data_dir to a folder with train.txt, valid.txt "
                "and test.txt (plain or .gz), or to one file of documents with a blank line between"
            )
        super().__init__(name, form, language, valid_share=valid_share, test_share=test_share)
        place = Path(data_dir).expanduser()
        self._place = place / name if (place / name).is_dir() else place
        self.label = _stem(self._place.resolve())
        self._boundary: Boundary = boundary

    def stream(self) -> Iterator[tuple[str, Document]]:
        files = self._files()
        for split, paths in by_rank({name: x for name, x in files.items() if name != "all"}):
            for document in self._read(paths):
                yield split, document
        count = 0
        for document in self._read(files.get("all", [])):
            count += 1
            yield split_by_hash(document.text, **self.shares), document
        if "all" in files and count < len(REQUIRED):
            raise ValueError(
                f"{self._place} holds {count} document(s), too few to split into train, valid and "
                "test: put a blank line between documents, set task.corpus.boundary=file for a "
                "folder of documents, or give train.txt, valid.txt and test.txt"
            )

    def key(self) -> str:
        files = [
            (split, path.name, file_checksum(path))
            for split, paths in self._files().items()
            for path in paths
        ]
        settings = (self.form, self._boundary, self.language, sorted(self.shares.items()))
        return f"{self.name}-{files}-{settings}-{RULES}-{splitter()}"

    def describe(self) -> dict[str, object]:
        files = self._files()
        held_out = {"split_by": "hash of the text", **self.shares} if "all" in files else {}
        names = {split: [path.name for path in paths] for split, paths in files.items()}
        return {**super().describe(), "boundary": self._boundary, "files": names, **held_out}

    def _read(self, paths: list[Path]) -> Iterator[Document]:
        read = read_documents if self._boundary == "blank_line" else whole_document
        for path in paths:
            document = None
            lines = stream_lines(path)
            for document in read(lines, form=self.form, language=self.language, origin=path.name):
                yield document
            if document is None:
                raise ValueError(f"{path} holds no sentence, only blank lines; give it text")

    def _files(self) -> dict[str, list[Path]]:
        """Return the files of each split, or those of `all` where the text has no splits."""
        if self._place.is_file():
            return {"all": [self._place]}
        if not self._place.is_dir():
            raise ValueError(f"no file or folder {self._place}; set data_dir to where the text is")
        held = sorted(path for path in self._place.iterdir() if path.is_file())
        texts = {_stem(x): x for x in reversed(held) if x.name.endswith((".txt", ".txt.gz"))}
        if not texts:
            raise ValueError(
                f"{self._place} has no .txt or .txt.gz file; it holds "
                f"{', '.join(path.name for path in held[:20]) or 'nothing'}. Set data_dir to a "
                "file, or to a folder with train.txt, valid.txt and test.txt"
            )
        missing = [split for split in REQUIRED if split not in texts]
        if missing == list(REQUIRED):
            return {"all": [texts[name] for name in sorted(texts)]}
        if missing:
            raise ValueError(
                f"{self._place} has neither {missing[0]}.txt nor {missing[0]}.txt.gz; add the file "
                "(text without splits needs another name than train, valid or test)"
            )
        further = sorted(name for name in texts if name.startswith("test_"))
        return {split: [texts[split]] for split in (*REQUIRED, *further)}


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".txt")


def read_documents(
    lines: Iterable[str], *, form: TextForm, language: str, origin: str
) -> Iterator[Document]:
    """Yield the documents of lines, which blank lines separate.

    Each is named by `origin` and the number of its first line.
    """
    for number, block in blocks(lines):
        yield Document(f"{origin}, line {number}", tuple(cut(block, form, language)))


def whole_document(
    lines: Iterable[str], *, form: TextForm, language: str, origin: str
) -> Iterator[Document]:
    """Yield all lines as one document, or none where all are blank.

    Here a blank line ends a paragraph, and the lines of a paragraph that was wrapped are joined.
    """
    sentences: list[str] = []
    for _, block in blocks(lines):
        sentences += cut(block if form == "sentences" else [" ".join(block)], form, language)
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


def cut(lines: Iterable[str], form: TextForm, language: str) -> list[str]:
    """Return the sentences of lines."""
    if form == "sentences":
        return list(lines)
    return [x for line in lines for x in split_sentences(line, language=language)]


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
