"""Documents in the tables of the Hugging Face Hub: Parquet or JSON lines, there or in a folder."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from normlab.data.corpus import has_tables, unavailable
from normlab.data.documents import (
    REQUIRED,
    RULES,
    Document,
    DocumentCorpus,
    TextForm,
    by_rank,
    in_order,
    read_documents,
    split_by_hash,
    split_sentences,
    splitter,
    whole_document,
)

Rows = Literal["documents", "lines", "articles"]
SPLITS = {"train": "train", "validation": "valid", "valid": "valid", "test": "test"}
_TEXT = ("string", "large_string", "null")  # a column of empty rows alone has no other type
# " = Title = " begins an article; " = = Section = = " does not.
_TITLE = re.compile(r"= [^=](.*[^=])? =")


class HubDocuments(DocumentCorpus):
    """A data set with a column of text, such as WikiText.

    `path` and `config` name it on the hub; `data_dir` is a folder of its files instead, with those
    of a config in a folder of that name or not. `rows` says what a row of `column` is: `documents`,
    whose lines are paragraphs; `lines`, where an empty row ends a document; `articles`, WikiText's
    lines, where a title between blank rows begins one (titles stay, as do all other lines).

    `form` says whether a line is a sentence or a paragraph of `language`. A data set without
    validation or test rows has `valid_share` or `test_share` of its training documents held out, by
    a hash of their text. `max_documents` keeps the first so many of each split, null all.

    `datasets` keeps the rows as one memory-mapped Arrow copy in its own cache. `revision` is the
    data set's commit on the hub; null takes the newest.
    """

    def __init__(
        self,
        data_dir: str | None,
        *,
        path: str,
        config: str | None,
        rows: Rows,
        column: str,
        form: TextForm,
        language: str,
        licence: str,
        name: str,
        valid_share: float,
        test_share: float,
        max_documents: int | None,
        revision: str | None = None,
    ) -> None:
        self.name = name
        self.licence = licence
        self.language = language
        self._folder = None if data_dir is None else Path(data_dir).expanduser()
        source = f"{path} ({config})" if config else path
        self.label = source if self._folder is None else f"{self._folder.resolve().name} (files)"
        self._path = path
        self._config = config
        self._rows: Rows = rows
        self._column = column
        self._form: TextForm = form
        self._shares = {"valid_share": valid_share, "test_share": test_share}
        self._max_documents = max_documents
        self._revision = revision
        self._empty: int | None = None
        self._loaded: dict[str, Any] | None = None

    def origin(self) -> str:
        """Return the data set of the hub."""
        return f"Hugging Face Hub, {self._path}" + (f" ({self._config})" if self._config else "")

    def split_names(self) -> Sequence[str]:
        """Return the splits that there are rows for, and those that are held out of train."""
        return in_order({*self._tables(), *REQUIRED})

    def stream(self) -> Iterator[tuple[str, Document]]:
        """Yield the documents of the rows, one after the other."""
        tables = self._tables()
        self._empty = 0
        for split in by_rank(tables):
            for document in self._documents(split, tables[split]):
                yield self._held_out(document) if split == "train" else split, document

    def key(self) -> str:
        """Return a string of the text and of what decides how its rows are cut."""
        digest = hashlib.sha256()
        for split, table in self._tables().items():
            digest.update(f"{split} {len(table)}\n".encode())
            for texts in _batches(table, self._column):
                digest.update("\x1e".join(texts).encode())
        settings = (self._rows, self._form, self.language, self._max_documents, self._shares)
        return f"{self.name}-{digest.hexdigest()}-{settings}-{RULES}-{splitter()}"

    def describe(self) -> dict[str, object]:
        """Add the data set's own name and how its rows were cut."""
        return {
            **super().describe(),
            "path": self._path,
            "config": self._config,
            "rows": self._rows,
            "form": self._form,
            "sentences_by": "lines" if self._form == "sentences" else splitter(),
            "max_documents": self._max_documents,
            **self._shares,
            **({} if self._revision is None else {"revision": self._revision}),
        }

    def left_out(self) -> dict[str, int]:
        """Return how many of the rows that were read have no text."""
        if self._rows != "documents":
            return {}
        if self._empty is None:
            for _ in self.stream():
                pass
        return {"empty_rows": self._empty or 0}

    def _tables(self) -> dict[str, Any]:
        """Open the rows by split, under the names of this package; hardly anything is read yet."""
        if self._loaded is None:
            tables = self._load()
            self._loaded = {SPLITS[s]: table for s, table in tables.items() if s in SPLITS}
            for split, table in self._loaded.items():
                columns = {
                    name: getattr(feature, "dtype", "list")
                    for name, feature in table.features.items()
                }
                if self._column not in columns:
                    raise ValueError(
                        f"{self._path}:{split} has the columns {', '.join(columns)}; "
                        f"set task.corpus.column, now {self._column}, to the one with the text"
                    )
                if (kind := columns[self._column]) not in _TEXT:
                    raise ValueError(
                        f"{self._path}:{split}: column {self._column} holds {kind}, not text; set "
                        f"task.corpus.column to one with text ({', '.join(columns)})"
                    )
            if "train" not in self._loaded:
                raise ValueError(
                    f"{self._path} has no train split; it has {', '.join(tables)}; name the file "
                    "of training rows train.parquet or train.jsonl"
                )
        return self._loaded

    def _tables_folder(self) -> Path:
        """Return the folder of files, which may be one of the config's name in `data_dir`."""
        assert self._folder is not None
        folder = self._folder / self._config if self._config else self._folder
        return folder if folder.is_dir() else self._folder

    def _load(self) -> dict[str, Any]:
        import datasets  # heavy, and not needed where the text lies in plain files

        if self._folder is None:
            try:
                tables = datasets.load_dataset(self._path, self._config, revision=self._revision)
            except Exception as error:
                raise unavailable(
                    self.label,
                    f"the data set {self._path} of the Hugging Face Hub",
                    error,
                    "With a network, run the command again. Without one, set data_dir=FOLDER to a "
                    "folder that holds its Parquet files, train*.parquet, validation*.parquet and "
                    f"test*.parquet, downloaded elsewhere from "
                    f"https://huggingface.co/datasets/{self._path}. The documentation that every "
                    "Python carries needs no download: task/corpus=pydoc.",
                ) from error
        else:
            folder = self._tables_folder()
            if not folder.is_dir() or not has_tables(folder):
                raise ValueError(
                    f"{folder} holds no .parquet or .jsonl file; set data_dir to the folder of the "
                    "data set's files (.jsonl.gz is read too)"
                )
            try:
                tables = datasets.load_dataset(str(folder))
            except Exception as error:
                cause = " ".join(str(error.__cause__ or error).split())[:200]
                raise ValueError(
                    f"cannot read the tables in {folder}, {type(error).__name__}: {cause}; every "
                    "file of all splits needs rows of the same columns (leave out the file of a "
                    "split without rows, and download a damaged file again)"
                ) from error
        assert isinstance(tables, Mapping)
        return {str(split): table for split, table in tables.items()}

    def _documents(self, split: str, table: Any) -> Iterator[Document]:
        origin = f"{self._path}:{split}"
        return islice(self._cut(self._texts(table), origin), self._max_documents)

    def _texts(self, table: Any) -> Iterator[str]:
        assert self._empty is not None
        for texts in _batches(table, self._column):
            for text in texts:
                self._empty += not text.strip()
                yield text

    def _cut(self, texts: Iterable[str], origin: str) -> Iterable[Document]:
        if self._rows == "documents":
            return (
                Document(document.origin, document.sentences)
                for number, text in enumerate(texts)
                for document in whole_document(
                    text.replace("\n", "\n\n").split("\n"),  # a line is a whole paragraph
                    form=self._form,
                    language=self.language,
                    origin=f"{origin}, row {number}",
                )
            )
        if self._rows == "articles":
            return articles(texts, form=self._form, language=self.language, origin=origin)
        return read_documents(texts, form=self._form, language=self.language, origin=origin)

    def _held_out(self, document: Document) -> str:
        """Return the split of a training document: one that the data set has no rows of, or train.

        Where only one is missing, documents that a hash gives to the other stay in train.
        """
        split = split_by_hash(document.text, **self._shares)
        return "train" if split in self._tables() else split


def articles(
    lines: Iterable[str], *, form: TextForm, language: str, origin: str
) -> Iterator[Document]:
    """Cut WikiText into its articles; each begins with its title and keeps every line.

    A title stands between blank lines: without that, a line of an equation would be taken for one.
    Lines before the first title are a document of their own.
    """
    name, body = f"{origin}, before the first title", list[str]()
    for before, line, after in _with_neighbours(line.strip() for line in lines):
        title = not before and not after and _TITLE.fullmatch(line)
        if title:
            if body:
                yield Document(name, tuple(body))
            name, body = f"{origin}, {line.strip('= ')}", []
        if form == "sentences" or title:
            body.extend([line] if line else [])
        else:
            body.extend(split_sentences(line, language=language))
    if body:
        yield Document(name, tuple(body))


def _with_neighbours(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each line with the one before and the one after; beyond the ends they are blank."""
    before, line = "", None
    for after in lines:
        if line is not None:
            yield before, line, after
            before = line
        line = after
    if line is not None:
        yield before, line, ""


def _batches(table: Any, column: str) -> Iterator[list[str]]:
    """Yield the texts of a column, many at a time; a row without text is an empty one."""
    for batch in table.select_columns(column).iter(batch_size=10_000):
        yield [text or "" for text in batch[column]]
