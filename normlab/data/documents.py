"""Corpora of documents: base classes, the user's own files, and Hugging Face Hub data sets.

A document is a sequence of sentences. If a text has no `valid` or `test` split, about the given
fraction of its training documents is held out. A hash of each document decides, so duplicates end
up in the same split.
"""

import hashlib
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from normlab.data.cache import file_checksum
from normlab.data.corpus import REQUIRED, Source
from normlab.data.hub import fingerprint_of, load_tables
from normlab.data.languages import language_of
from normlab.data.text_files import iterate_lines
from normlab.errors import UserError

_TEXTS = "data_dir to a file, or to a folder with train.txt, valid.txt and test.txt"
RULES = f"normlab.text/1 sentencex {version('sentencex')}"
"""The version of the rules that cut text into documents and sentences, for cache keys.

Raise the first number when the same text yields different documents.
"""
Document = Sequence[str]


class DocumentCorpus(Source):
    """A source of documents. `language` is the ISO 639 code of their language."""

    language: str

    @abstractmethod
    def documents(self) -> Iterator[tuple[str, Document]]:
        """Yield each document as its split and its sentences.

        Splits are `train`, `valid`, `test` and any further `test_<name>`. Of identical
        documents only the first is kept, so yield test sets before `valid`, and `valid` before
        `train`. The order does not matter if a hash of the text decides the split.
        """


def split_by_hash(text: str, valid_share: float, test_share: float) -> str:
    """Return the split (train, valid or test) chosen by a hash of the text."""
    place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
    if place < test_share:
        return "test"
    return "valid" if place < test_share + valid_share else "train"


@dataclass(kw_only=True, eq=False)
class CutDocuments(DocumentCorpus):
    """Documents cut from lines of text and assigned to splits according to the user's settings.

    Attributes:
        name: identifies the text: texts with the same name count as the same text.
        form: whether a line is a sentence or a paragraph. Paragraphs are cut into sentences by the
            rules of `language`.
    """

    data_dir: str | None
    name: str
    form: Literal["sentences", "paragraphs"]
    language: str
    valid_share: float
    test_share: float

    @abstractmethod
    def splits_of_text(self) -> Mapping[str, Iterable[Document]]:
        """Return the documents of each split that the text comes with, keyed by split."""

    def documents(self) -> Iterator[tuple[str, Document]]:
        splits, shares = self.splits_of_text(), (self.valid_share, self.test_share)
        for split in sorted(splits, key=lambda x: (x == "train", x == "valid", x)):
            for document in splits[split]:
                text = "".join(f"{sentence}\n" for sentence in document)
                hashed = split_by_hash(text, *shares) if split == "train" else split
                yield (split if hashed in splits else hashed), document

    def settings(self) -> str:
        """Return the settings that decide how the text is cut, for the cache key."""
        values = {k: v for k, v in vars(self).items() if k[0] != "_" and k != "data_dir"}
        return f"{values} {RULES}"

    @cached_property
    def _rules(self) -> str:
        """The code of the language whose rules `sentencex` uses to cut paragraphs."""
        return language_of(self.language, "task.corpus.language").code

    def cut(self, lines: Iterable[str]) -> list[str]:
        """Return the sentences in lines of text."""
        if self.form == "sentences":
            return list(lines)
        return [x for line in lines for x in split_sentences(line, language=self._rules)]


@dataclass(kw_only=True, eq=False)
class FolderDocuments(CutDocuments):
    """The user's own text in UTF-8, plain or `.gz`.

    `data_dir` is a text file; or a folder with `train.txt`, perhaps `valid.txt` and `test.txt`, and
    no other text; or a folder of other `.txt` files, possibly in subfolders, which have no splits.
    If there is a folder `data_dir/<name>`, it is read instead. `boundary` says whether a document
    ends at a blank line or only at the end of its file. If it is `file` and `form` is `paragraphs`,
    blank lines separate paragraphs.
    """

    name: str = "documents"
    boundary: Literal["blank_line", "file"]
    licence = "as stated by the owner of the text"

    def __post_init__(self) -> None:
        language_of(self.language, "task.corpus.language")
        if self.data_dir is None:
            raise UserError(f"set {_TEXTS}")
        place = Path(self.data_dir).expanduser()
        self._place = place / self.name if (place / self.name).is_dir() else place
        self.label = _stem(self._place.resolve())

    def splits_of_text(self) -> Mapping[str, Iterable[Document]]:
        return {
            split: (document for path in paths for document in self._read(path))
            for split, paths in self._files().items()
        }

    def _read(self, path: Path) -> Iterator[Document]:
        """Yield the documents of a file: only one if `boundary` is `file`."""
        parts = blocks(iterate_lines(path))
        if self.boundary == "file":
            joined = ([" ".join(part)] if self.form == "paragraphs" else part for part in parts)
            parts = iter([[line for part in joined for line in part]])
        yield from filter(None, map(self.cut, parts))

    def files(self) -> Mapping[str, Path]:
        files = [path for paths in self._files().values() for path in paths]
        inside = self._place.is_dir()
        return {str(x.relative_to(self._place)) if inside else x.name: x for x in files}

    def key(self) -> str:
        files = [(x, *map(file_checksum, paths)) for x, paths in self._files().items()]
        return f"{files} {self.settings()}"

    def _files(self) -> dict[str, list[Path]]:
        """Return the files of each split. All files of a text without splits are in `train`."""
        if self._place.is_file():
            return {"train": [self._place]}
        if not self._place.is_dir():
            raise UserError(f"data_dir={self._place} does not exist; set {_TEXTS}")
        texts = text_files(self._place)
        if not texts:
            raise UserError(f"{self._place} has no .txt or .txt.gz file; set {_TEXTS}")
        if not texts.keys() & {"train", "valid", "test"}:
            return {"train": [texts[name] for name in sorted(texts)]}
        if "train" not in texts:
            raise UserError(f"{self._place} has no train.txt; set {_TEXTS}")
        if unread := sorted(texts.keys() - {*REQUIRED}):
            names = ", ".join(str(texts[name].relative_to(self._place)) for name in unread[:3])
            raise UserError(
                f"{self._place} has train.txt, and {len(unread)} files that would not be read "
                f"({names}); rename them to valid.txt or test.txt, or move them out of the folder"
            )
        return {split: [texts[split]] for split in REQUIRED if split in texts}


def text_files(folder: Path) -> dict[str, Path]:
    """Return the `.txt` and `.txt.gz` files in a folder and its subfolders.

    The keys are relative paths without the suffixes. Hidden files and folders, such as those that
    macOS or an editor leaves behind, are skipped. Raises UserError if two files have the same key,
    or if there is a symbolic link to a folder, which could lead anywhere.
    """
    files_by_name: dict[str, Path] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if links := [name for name in folders if Path(place, name).is_symlink()]:
            raise UserError(
                f"{Path(place, links[0])} is a link to a folder, which is not followed; put the "
                "files themselves there, or links to them"
            )
        for path in (Path(place, name) for name in sorted(files) if not name.startswith(".")):
            if not path.name.lower().endswith((".txt", ".txt.gz")):
                continue
            name = str(path.relative_to(folder).with_name(_stem(path)))
            if name in files_by_name:
                raise UserError(
                    f"{folder} has both {files_by_name[name].name} and {path.name}; keep one"
                )
            files_by_name[name] = path
    return files_by_name


def _stem(path: Path) -> str:
    return re.sub(r"(\.txt)?(\.gz)?$", "", path.name, flags=re.IGNORECASE)


def blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield each run of lines between blank lines, with each line stripped."""
    groups = groupby(map(str.strip, lines), key="".__eq__)
    return (list(group) for blank, group in groups if not blank)


@dataclass(kw_only=True, eq=False)
class HubDocuments(CutDocuments):
    """A data set on the Hugging Face Hub with a text column, such as WikiText.

    `path` and `config` identify it on the hub. If `data_dir` is set, that folder of the data set's
    Parquet or JSON files is read instead. With `rows=documents`, each row of `column` is a document
    with one paragraph per line. With `rows=articles`, each row is a line of WikiText, and a title
    between blank rows starts an article.
    """

    path: str
    config: str | None
    rows: Literal["documents", "articles"]
    column: str
    licence: str

    def __post_init__(self) -> None:
        language_of(self.language, "task.corpus.language")
        self.label = f"{self.path} ({self.config})" if self.config else self.path
        self._place: tuple[str, str | None] = (self.path, self.config)
        if self.data_dir is not None:
            folder = Path(self.data_dir).expanduser()
            self.label, self._place = f"{folder.resolve().name} (files)", (str(folder), None)

    def splits_of_text(self) -> Mapping[str, Iterable[Document]]:
        read = self.articles if self.rows == "articles" else self._by_row
        return {split: read(self._texts(split)) for split in self._tables}

    def files(self) -> Mapping[str, Path]:
        if self.data_dir is None:
            return {}
        folder = Path(self._place[0])
        files = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path for path in files}

    def key(self) -> str:
        prints = {split: fingerprint_of(table) for split, table in self._tables.items()}
        return f"{prints} {self.settings()}"

    def _texts(self, split: str) -> Iterator[str]:
        """Yield the text of each row of a split ("" if it has none), reading rows in batches."""
        for batch in self._tables[split].select_columns(self.column).iter(batch_size=10_000):
            yield from (str(text or "") for text in batch[self.column])

    @cached_property
    def _tables(self) -> dict[str, Any]:
        """The memory-mapped tables, keyed by normlab's names for the splits."""
        loaded = load_tables(*self._place, files=f"the Parquet files of {self.path}")
        names = {"train": "train", "validation": "valid", "valid": "valid", "test": "test"}
        tables = {names[split]: table for split, table in loaded.items() if split in names}
        if "train" not in tables or self.column not in tables["train"].column_names:
            raise UserError(
                f"{self._place[0]} needs a train split with task.corpus.column={self.column}; it "
                f"has {', '.join(f'{x} ({table.column_names})' for x, table in loaded.items())}"
            )
        return tables

    def _by_row(self, texts: Iterable[str]) -> Iterator[Document]:
        """Yield each non-empty row as a document."""
        for text in texts:
            if lines := [line for block in blocks(text.split("\n")) for line in block]:
                yield self.cut(lines)

    def articles(self, lines: Iterable[str]) -> Iterator[Document]:
        """Cut WikiText into articles, each starting with its title.

        A title has blank lines around it, unlike a line of an equation that looks the same. No line
        is dropped: lines before the first title form a document.
        """
        body: list[str] = []
        for block in blocks(lines):
            # " = Title = " starts an article; " = = Section = = " does not.
            title = len(block) == 1 and re.fullmatch("= [^=](.*[^=])? =", block[0])
            if title and body:
                yield body
                body = []
            body += block if title else self.cut(block)
        if body:
            yield body


def split_sentences(paragraph: str, *, language: str) -> list[str]:
    """Cut a paragraph into sentences, treating line breaks as spaces.

    A sentence ends only at white space, so a name such as `os.Path` is not cut. `language` is an
    ISO 639 code. If `sentencex` has no rules for that language, it falls back to a related language
    or to English.
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
