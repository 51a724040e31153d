"""Documents in the tables of the Hugging Face Hub: Parquet or JSON lines, there or in a folder."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from normlab.data.corpus import has_tables, unavailable
from normlab.data.documents import (
    RULES,
    CutDocuments,
    Document,
    TextForm,
    by_rank,
    cut,
    read_documents,
    split_by_hash,
    splitter,
    whole_document,
)

Rows = Literal["documents", "lines", "articles"]
SPLITS = {"train": "train", "validation": "valid", "valid": "valid", "test": "test"}
# " = Title = " begins an article; " = = Section = = " does not.
_TITLE = re.compile(r"= [^=](.*[^=])? =")


class HubDocuments(CutDocuments):
    """A data set with a column of text, such as WikiText.

    `path` and `config` name it on the hub; `data_dir` is a folder of its files instead, with those
    of a config in a folder of that name or not. `rows` says what a row of `column` is: `documents`,
    whose lines are paragraphs; `lines`, where an empty row ends a document; `articles`, WikiText's
    lines, where a title between blank rows begins one (titles stay, as do all other lines). Only a
    data set without validation or test rows has training documents held out. `max_documents` keeps
    the first so many of each split, null all.

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
        super().__init__(name, form, language, valid_share=valid_share, test_share=test_share)
        self.licence = licence
        self._folder = None if data_dir is None else Path(data_dir).expanduser()
        source = f"{path} ({config})" if config else path
        self.label = source if self._folder is None else f"{self._folder.resolve().name} (files)"
        self._path, self._config, self._revision = path, config, revision
        self._rows: Rows = rows
        self._column = column
        self._max_documents = max_documents

    def origin(self) -> str:
        return f"Hugging Face Hub, {self._path}" + (f" ({self._config})" if self._config else "")

    def stream(self) -> Iterator[tuple[str, Document]]:
        for split, table in by_rank(self._tables):
            rows = (text for texts in _batches(table, self._column) for text in texts)
            documents = self._documents(rows, f"{self._path}:{split}")
            for document in islice(documents, self._max_documents):
                # What a hash gives to a split that the data set has rows of stays in train.
                hashed = split_by_hash(document.text, **self.shares) if split == "train" else split
                yield (split if hashed in self._tables else hashed), document

    def key(self) -> str:
        digest = hashlib.sha256()
        for split, table in self._tables.items():
            digest.update(f"{split} {len(table)}\n".encode())
            for texts in _batches(table, self._column):
                digest.update("\x1e".join(texts).encode())
        settings = (self._rows, self.form, self.language, self._max_documents, self.shares)
        return f"{self.name}-{digest.hexdigest()}-{settings}-{RULES}-{splitter()}"

    def describe(self) -> dict[str, object]:
        return {
            **super().describe(),
            "path": self._path,
            "config": self._config,
            "rows": self._rows,
            "max_documents": self._max_documents,
            **self.shares,
            **({} if self._revision is None else {"revision": self._revision}),
        }

    @cached_property
    def _tables(self) -> dict[str, Any]:
        """The rows by split, under the names of this package; hardly anything is read yet."""
        found = self._load()
        tables = {SPLITS[split]: table for split, table in found.items() if split in SPLITS}
        if "train" not in tables:
            raise ValueError(
                f"{self._path} has no train split; it has {', '.join(map(str, found))}; name the "
                "file of training rows train.parquet or train.jsonl"
            )
        for split, table in tables.items():
            kinds = {x: getattr(kind, "dtype", "list") for x, kind in table.features.items()}
            # A column of empty rows alone is of the type null.
            if kinds.get(self._column) not in ("string", "large_string", "null"):
                columns = ", ".join(f"{column} ({kind})" for column, kind in kinds.items())
                raise ValueError(
                    f"{self._path}:{split} has no text in task.corpus.column={self._column}; its "
                    f"columns are {columns}"
                )
        return tables

    def _load(self) -> Any:
        import datasets  # heavy, and not needed where the text is in plain files

        if self._folder is None:
            try:
                return datasets.load_dataset(self._path, self._config, revision=self._revision)
            except Exception as error:
                raise unavailable(
                    self.label,
                    f"the data set {self._path} of the Hugging Face Hub",
                    error,
                    "Run the command again, or set data_dir=FOLDER to a folder with its Parquet "
                    f"files of https://huggingface.co/datasets/{self._path}, train*.parquet, "
                    "validation*.parquet and test*.parquet. task/corpus=pydoc needs no download.",
                ) from error
        folder = self._folder / (self._config or "")
        folder = folder if folder.is_dir() else self._folder
        if not folder.is_dir() or not has_tables(folder):
            raise ValueError(
                f"{folder} holds no .parquet or .jsonl file; set data_dir to the folder of the "
                "data set's files (.jsonl.gz is read too)"
            )
        try:
            return datasets.load_dataset(str(folder))
        except Exception as error:
            cause = " ".join(str(error.__cause__ or error).split())[:200]
            raise ValueError(
                f"cannot read the tables in {folder}, {type(error).__name__}: {cause}; all files "
                "need rows of the same columns (remove a file without rows, download a damaged "
                "file again)"
            ) from error

    def left_out(self) -> dict[str, int]:
        if self._rows != "documents":
            return {}
        batches = (x for table in self._tables.values() for x in _batches(table, self._column))
        return {"empty_rows": sum(not text.strip() for texts in batches for text in texts)}

    def _documents(self, texts: Iterable[str], origin: str) -> Iterator[Document]:
        if self._rows == "lines":
            yield from read_documents(texts, form=self.form, language=self.language, origin=origin)
        elif self._rows == "articles":
            yield from articles(texts, form=self.form, language=self.language, origin=origin)
        else:
            for number, text in enumerate(texts):
                lines = text.replace("\n", "\n\n").split("\n")  # a line is a whole paragraph
                row = f"{origin}, row {number}"
                yield from whole_document(lines, form=self.form, language=self.language, origin=row)


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
        if line:
            body += cut([line], "sentences" if title else form, language)
    if body:
        yield Document(name, tuple(body))


def _with_neighbours(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each line with the one before and the one after; beyond the ends they are blank."""
    before, line = "", None
    for after in chain(lines, [""]):
        if line is not None:
            yield before, line, after
            before = line
        line = after


def _batches(table: Any, column: str) -> Iterator[list[str]]:
    """Yield the texts of a column, many at a time; a row without text is an empty one."""
    for batch in table.select_columns(column).iter(batch_size=10_000):
        yield [text or "" for text in batch[column]]
