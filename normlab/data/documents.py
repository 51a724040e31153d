"""Documents: what a corpus of them is, files of the user's own, and tables of the hub.

A document is a sequence of sentences. Text without a split `valid` or `test` has about a share of
its training documents held out, by a hash of their text, equal documents together.
"""

import hashlib
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import chain, groupby, islice, tee
from pathlib import Path
from typing import Any, Literal

from normlab.data.cache import file_checksum
from normlab.data.corpus import REQUIRED, Source, stream_lines, unavailable

RULES = "normlab.text/1"
"""Of how text is cut: raise it when the same files or the same Python give other documents."""
Document = Sequence[str]
Lines = Iterable[str]


class DocumentCorpus(Source):
    """A source of documents in one `language` (its ISO 639 code)."""

    language: str

    @abstractmethod
    def documents(self) -> Iterator[tuple[str, Document]]:
        """Yield the split and the sentences of each document.

        Splits are `train`, `valid`, `test` and further `test_<name>`. Of equal documents the first
        one is kept: test sets come before `valid`, that before `train`. Documents whose split is a
        hash of their text may come in any order.
        """


def split_by_hash(text: str, valid_share: float, test_share: float) -> str:
    """Return which of the three splits a hash of a text puts it in."""
    place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
    if place < test_share:
        return "test"
    return "valid" if place < test_share + valid_share else "train"


@dataclass(kw_only=True, eq=False)
class CutDocuments(DocumentCorpus):
    """Documents that are cut out of lines, and into splits, by the settings of the user.

    Attributes:
        name: part of the experiment: runs on two texts of one name would be taken for the same.
        form: what a line is: a sentence, or a paragraph whose sentences are found by rules for
            `language`.
        max_documents: keeps the first so many of each split, null all.
    """

    data_dir: str | None
    name: str
    form: Literal["sentences", "paragraphs"]
    language: str
    valid_share: float
    test_share: float
    max_documents: int | None = None

    @abstractmethod
    def given(self) -> Mapping[str, Iterable[Document]]:
        """Return the documents of each split that the text has."""

    def documents(self) -> Iterator[tuple[str, Document]]:
        given, shares = self.given(), (self.valid_share, self.test_share)
        for split in sorted(given, key=lambda x: (x == "train", x == "valid", x)):
            for document in islice(given[split], self.max_documents):
                text = "".join(f"{sentence}\n" for sentence in document)
                hashed = split_by_hash(text, *shares) if split == "train" else split
                yield (split if hashed in given else hashed), document

    def settings(self) -> str:
        """Return what decides how the same text is cut."""
        values = {k: v for k, v in vars(self).items() if k[0] != "_" and k != "data_dir"}
        return f"{values} {RULES} {splitter()}"

    def by_blank_line(self, lines: Lines) -> Iterator[Document]:
        """Yield the documents of lines, which blank lines separate."""
        for blank, block in groupby(map(str.strip, lines), key="".__eq__):
            if not blank:
                yield self.cut(block)

    def whole(self, lines: Lines) -> Iterator[Document]:
        """Yield all lines as one document; a paragraph's lines are joined, a blank line ends it."""
        blocks = groupby(map(str.strip, lines), key="".__eq__)
        paragraphs = [list(block) for blank, block in blocks if not blank]
        if self.form == "paragraphs":
            paragraphs = [[" ".join(block)] for block in paragraphs]
        if paragraphs:
            yield self.cut(line for block in paragraphs for line in block)

    def cut(self, lines: Lines) -> list[str]:
        """Return the sentences of lines."""
        if self.form == "sentences":
            return list(lines)
        return [x for line in lines for x in split_sentences(line, language=self.language)]


@dataclass(kw_only=True, eq=False)
class FolderDocuments(CutDocuments):
    """Text of the user's own, UTF-8, plain or `.gz`.

    `data_dir` is a text file, or a folder with `train.txt`, `valid.txt`, `test.txt` (and further
    `test_<name>.txt`), or a folder of other `.txt` files, without splits. A folder
    `data_dir/<name>` goes first. `boundary` says what ends a document: a blank line, or the file
    alone; then a blank line ends a paragraph, whose lines are joined.
    """

    name: str = "documents"
    boundary: Literal["blank_line", "file"]
    licence = "as stated by the owner of the text"

    def __post_init__(self) -> None:
        if self.data_dir is None:
            raise ValueError(
                "this task reads your own text: set data_dir to a folder with train.txt, valid.txt "
                "and test.txt (plain or .gz), or to one file of documents with a blank line between"
            )
        place = Path(self.data_dir).expanduser()
        self._place = place / self.name if (place / self.name).is_dir() else place
        self.label = _stem(self._place.resolve())

    def given(self) -> Mapping[str, Iterable[Document]]:
        read = self.by_blank_line if self.boundary == "blank_line" else self.whole
        return {
            split: (document for path in paths for document in read(stream_lines(path)))
            for split, paths in self._files().items()
        }

    def key(self) -> str:
        files = [(x, *map(file_checksum, paths)) for x, paths in self._files().items()]
        return f"{files} {self.settings()}"

    def _files(self) -> dict[str, list[Path]]:
        """Return the files of each split; a text without splits is all of `train`."""
        if self._place.is_file():
            return {"train": [self._place]}
        held = sorted(self._place.iterdir()) if self._place.is_dir() else []
        texts = {_stem(x): x for x in reversed(held) if x.name.endswith((".txt", ".txt.gz"))}
        if not texts or ("train" not in texts and texts.keys() & {"valid", "test"}):
            raise ValueError(
                f"{self._place} has no {'train.txt' if texts else '.txt or .txt.gz file'}; it "
                f"holds {', '.join(path.name for path in held[:20]) or 'nothing'}. Set data_dir to "
                "a file, or to a folder with train.txt, valid.txt and test.txt"
            )
        if "train" not in texts:
            return {"train": [texts[name] for name in sorted(texts)]}
        splits = sorted(x for x in texts if x in REQUIRED or x.startswith("test_"))
        return {split: [texts[split]] for split in splits}


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".txt")


@dataclass(kw_only=True, eq=False)
class HubDocuments(CutDocuments):
    """A data set with a column of text, such as WikiText.

    `path` and `config` name it on the hub; `data_dir` is a folder of its Parquet or JSON files
    instead, with those of a config in a folder of that name or not. `rows` says what a row of
    `column` is: `documents`, whose lines are paragraphs; `articles`, WikiText's lines, where a
    title between blank rows begins one (titles stay, as do all other lines).

    `datasets` keeps the rows as one memory-mapped Arrow copy in its own cache.
    """

    path: str
    config: str | None
    rows: Literal["documents", "articles"]
    column: str
    licence: str

    def __post_init__(self) -> None:
        self.label = f"{self.path} ({self.config})" if self.config else self.path
        self.origin = f"Hugging Face Hub, {self.label}"
        if self.data_dir is not None:
            self.label = f"{Path(self.data_dir).expanduser().resolve().name} (files)"

    def given(self) -> Mapping[str, Iterable[Document]]:
        read = self.articles if self.rows == "articles" else self._by_row
        return {split: read(self._texts(split)) for split in self._tables}

    def key(self) -> str:
        digest = hashlib.sha256()
        for split in self._tables:
            for text in chain([split], self._texts(split)):
                digest.update(f"{text}\x1e".encode())
        return f"{digest.hexdigest()} {self.settings()}"

    def _texts(self, split: str) -> Iterator[str]:
        """Yield the texts of a split, read many at a time; a row without text is an empty one."""
        for batch in self._tables[split].select_columns(self.column).iter(batch_size=10_000):
            yield from (str(text or "") for text in batch[self.column])

    @cached_property
    def _tables(self) -> dict[str, Any]:
        """The rows by split, under the names of this package; hardly anything is read yet."""
        import datasets  # heavy, and not needed where the text is in plain files

        name, config = self.path, self.config
        if self.data_dir is not None:
            folder = Path(self.data_dir).expanduser()
            inner = folder / (config or "")
            name, config = str(inner if inner.is_dir() else folder), None
        try:
            found: Any = datasets.load_dataset(name, config)
        except Exception as error:
            raise unavailable(
                f"the text of {self.label}",
                name,
                error,
                "Run the command again, or set data_dir=FOLDER to a folder with its Parquet files "
                f"of https://huggingface.co/datasets/{self.path}, train*.parquet, "
                "validation*.parquet and test*.parquet, all with rows of the same columns. "
                "task/corpus=pydoc needs no download.",
            ) from error
        names = {"train": "train", "validation": "valid", "valid": "valid", "test": "test"}
        tables = {names[split]: table for split, table in found.items() if split in names}
        if "train" not in tables or self.column not in tables["train"].column_names:
            raise ValueError(
                f"{name} needs a train split with task.corpus.column={self.column}; it has "
                f"{', '.join(f'{split} ({table.column_names})' for split, table in found.items())}"
            )
        return tables

    def _by_row(self, texts: Lines) -> Iterator[Document]:
        for text in texts:  # each line is a whole paragraph
            yield from self.whole(text.replace("\n", "\n\n").split("\n"))

    def articles(self, lines: Lines) -> Iterator[Document]:
        """Cut WikiText into its articles; each begins with its title and keeps every line.

        A title stands between blank lines: without that, a line of an equation would be taken for
        one. Lines before the first title are a document of their own.
        """
        befores, these, afters = tee(map(str.strip, lines), 3)
        body: list[str] = []
        for before, line, after in zip(
            chain([""], befores), these, chain(islice(afters, 1, None), [""]), strict=False
        ):
            # " = Title = " begins an article; " = = Section = = " does not.
            title = not before and not after and re.fullmatch("= [^=](.*[^=])? =", line)
            if title and body:
                yield body
                body = []
            if line:
                body += [line] if title else self.cut([line])
        if body:
            yield body


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
