"""The articles in `configs/article`: their sentences and tables, each with what was found on it.

id: 1                                  the number of the article; the file is named 1.yaml
title: {zh: ..., en: ...}              every text has the Chinese original and its English
tables:
  translation:                         the name of the table
    section: "4"                       where the table is in the article
    title: {zh: ..., en: ...}
    columns: [{zh: ..., en: ...}, ...]
    rows:
      - - {zh: Transformer + LN}       the first cell names the row; `en` may be left out if it
        - zh: "35.2"                   is the same
          ours: [{part: 1.figure}]     every other cell has what was found, of the kinds in
    below: [...]                       `normlab.articles.evidence.KINDS`, and so has the whole
                                       table, optionally, below it
sections:                              the article in its own order
  - title: {zh: ..., en: ...}
    body:
      - {zh: ..., en: ..., ours: [...]}   a sentence; `ours` may be left out if it states nothing
                                          that can be checked, and `try`, a command to type
      - {table: translation}              one of the tables
      - {piece: tensor}                   one of the live pieces in `PIECES`
"""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from normlab.articles.evidence import KINDS, Item, RowItem
from normlab.articles.language import Locale, Words
from normlab.claims.endpoint import Text
from normlab.config.conversion import convert
from normlab.config.yaml_files import read_yaml
from normlab.errors import UserError


class ArticleCell(Struct, frozen=True, forbid_unknown_fields=True):
    """A cell: the article's words, and what was found on them."""

    zh: Text
    en: str = ""
    ours: tuple[Any, ...] = ()

    def text(self, language: Locale) -> str:
        return Words(self.zh, self.en).text(language)


class ArticleTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of an article; the first cell of each row is its name.

    `below` is what was found on the table as a whole.
    """

    section: Text
    title: Words
    columns: tuple[Words, ...]
    rows: tuple[tuple[ArticleCell, ...], ...]
    below: tuple[Any, ...] = ()

    @property
    def items(self) -> list[Item]:
        """Return all evidence that the table refers to, in reading order."""
        return [item for row in self.rows for cell in row for item in cell.ours] + [*self.below]

    @property
    def runs(self) -> list[list[str]]:
        """Return the arguments of `normlab study run` for each study whose scores the table shows.

        Raises UserError for a table without scores of runs.
        """
        rows: dict[str, list[str]] = {}
        points: dict[str, set[str]] = {}
        for item in self.items:
            if isinstance(item, RowItem):
                study = item.of.partition("/")[0]
                rows.setdefault(study, []).extend(item.rows)
                points.setdefault(study, set()).add(item.at)
        if not rows:
            raise UserError("the table has no scores of runs; its parts: normlab claims N")
        studies: list[list[str]] = []
        for study, names in rows.items():
            listed = ",".join(f"'{name}'" for name in dict.fromkeys(names))
            at = points[study] if len(points[study]) == 1 else ()
            studies.append([study, f"rows=[{listed}]", *filter(None, at)])
        return studies


PIECES = ("tensor", "words", "padding", "marks")
"""The live pieces of the interactive page, in the order in which it lists them."""


class Passage(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A sentence of an article and what was found on it, or a table, or a live piece.

    `command` is one to try, in addition to the commands of the findings.
    """

    zh: str = ""
    en: str = ""
    ours: tuple[Any, ...] = ()
    command: str = msgspec.field(name="try", default="")
    table: str = ""
    piece: str = ""


class ArticleSection(Struct, frozen=True, forbid_unknown_fields=True):
    """A section of an article: its title and passages."""

    title: Words
    body: tuple[Passage, ...]


class Article(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An article: its number in docs/explanation/verdicts.md, title, tables by name, sections."""

    id: int
    title: Words
    tables: dict[str, ArticleTable]
    sections: tuple[ArticleSection, ...] = ()
    path: str = ""

    def table(self, name: str) -> ArticleTable:
        """Return a table; UserError naming all of them for another name."""
        if name not in self.tables:
            names = ", ".join(self.tables) or "none"
            raise UserError(f"article {self.id} has no table {name!r}; choose from {names}")
        return self.tables[name]


def load_all(folder: Path) -> dict[int, Article]:
    """Return all articles in a folder by number; UserError for an invalid file."""
    articles = [load(path) for path in sorted(folder.glob("*.yaml"))]
    return {article.id: article for article in articles}


def load(path: Path) -> Article:
    """Return an article; UserError naming the file, the key and what is expected there."""
    article = convert(read_yaml(path), Article, path)
    if path.stem != str(article.id):
        raise UserError(
            f"{path}: id: is {article.id}, so the file's name must be {article.id}.yaml"
        )
    tables = {name: _table(table, path, f"tables.{name}") for name, table in article.tables.items()}
    sections = tuple(
        msgspec.structs.replace(
            section,
            body=tuple(
                _passage(passage, article, path, f"sections[{number}].body[{place}]")
                for place, passage in enumerate(section.body)
            ),
        )
        for number, section in enumerate(article.sections)
    )
    return msgspec.structs.replace(article, path=str(path), tables=tables, sections=sections)


def _passage(passage: Passage, article: Article, path: Path, key: str) -> Passage:
    """Return a passage with its items converted to their kinds; UserError if it shows nothing."""
    shows = [bool(passage.zh and passage.en), bool(passage.table), bool(passage.piece)]
    if sum(shows) != 1:
        raise UserError(f"{path}: {key}: needs zh and en, or a table, or a piece")
    if passage.table and passage.table not in article.tables:
        raise UserError(f"{path}: {key}.table: choose from {', '.join(article.tables)}")
    if passage.piece and passage.piece not in PIECES:
        raise UserError(f"{path}: {key}.piece: choose from {', '.join(PIECES)}")
    return msgspec.structs.replace(passage, ours=items_of(passage.ours, path, f"{key}.ours"))


def _table(table: ArticleTable, path: Path, key: str) -> ArticleTable:
    """Return a table with its items converted to their kinds; UserError for an empty cell."""
    rows: list[tuple[ArticleCell, ...]] = []
    for number, row in enumerate(table.rows):
        at = f"{key}.rows[{number}]"
        if len(row) != len(table.columns):
            raise UserError(f"{path}: {at}: {len(row)} cells for {len(table.columns)} columns")
        if row[0].ours or not all(cell.ours for cell in row[1:]):
            raise UserError(
                f"{path}: {at}: every cell but the first needs `ours:`, what was found on it; "
                "if nothing can be, say why with {says: {zh: ..., en: ...}}"
            )
        cells = [
            msgspec.structs.replace(cell, ours=items_of(cell.ours, path, f"{at}[{place}].ours"))
            for place, cell in enumerate(row)
        ]
        rows.append(tuple(cells))
    below = items_of(table.below, path, f"{key}.below")
    return msgspec.structs.replace(table, rows=tuple(rows), below=below)


def items_of(nodes: tuple[Any, ...], path: Path, key: str) -> tuple[Item, ...]:
    """Convert a file's items to their kinds; a UserError names the key of an item without one."""
    items: list[Item] = []
    for number, node in enumerate(nodes):
        kinds = [kind for kind in KINDS if isinstance(node, dict) and kind in node]
        if len(kinds) != 1:
            known = ", ".join(KINDS)
            raise UserError(f"{path}: {key}[{number}]: needs one of {known}; found {node!r:.60}")
        items.append(convert(node, KINDS[kinds[0]], path, f"{key}[{number}]"))
    return tuple(items)
