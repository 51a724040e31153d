"""Reads the articles in `configs/article`: sentences and tables, each with what was found on it.

id: 1                                    the number of the article, whose file is 1.yaml
title: {zh: ..., en: ...}                texts are the Chinese original and its translation
tables:
  translation:                           the name of the table
    section: "4"                         where it is in the article
    title: {zh: ..., en: ...}
    columns: [{zh: ..., en: ...}, ...]
    rows:
      - - {zh: Transformer + LN}         the first cell is the name of the row; `en` may be left
                                         out if it is the same
        - zh: "35.2"
          evidence: [{part: 1.figure}]   all other cells need evidence, see `evidence_kinds/`
    below: [...]                         optional: the evidence on the table as a whole
sections:                                in the order of the article
  - title: {zh: ..., en: ...}
    body:
      - zh: ...                          a sentence
        en: ...
        evidence: [...]                  left out if it states nothing that can be checked
        command: normlab explain ln bn   optional: a command to type
      - {table: translation}             one of the tables
      - {piece: tensor}                  one of the live pieces in `PIECES`
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from normlab.articles.evidence_kinds import Evidence
from normlab.claims.in_words.language import ENGLISH, Locale, Words
from normlab.config.conversion import Text, WrongField, convert
from normlab.config.yaml_files import read_yaml
from normlab.errors import UserError

PIECES = ("tensor", "words", "padding", "marks")
"""The live pieces of the interactive page, in the order in which the page lists them."""


class ArticleCell(Struct, frozen=True, forbid_unknown_fields=True):
    """A cell of a table: the article's words, and the evidence on them."""

    zh: Text
    en: str = ""
    evidence: tuple[Evidence, ...] = ()

    def text(self, language: Locale) -> str:
        return Words(self.zh, self.en).text(language)


class ArticleTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of an article, in which the first cell of each row is the row's name.

    `below` is the evidence on the table as a whole.
    """

    section: Text
    title: Words
    columns: tuple[Words, ...]
    rows: tuple[tuple[ArticleCell, ...], ...]
    below: tuple[Evidence, ...] = ()

    def __post_init__(self) -> None:
        """Raise WrongField if a row has the wrong length or a cell lacks evidence."""
        for number, row in enumerate(self.rows):
            at = f"rows[{number}]"
            if len(row) != len(self.columns):
                raise WrongField(at, f"{len(row)} cells for {len(self.columns)} columns")
            if row[0].evidence or not all(cell.evidence for cell in row[1:]):
                raise WrongField(
                    at,
                    "every cell but the first needs `evidence:`, what was found on it; if nothing "
                    "can be found, state the reason as {remark: {zh: ..., en: ...}}",
                )

    @property
    def evidence(self) -> list[Evidence]:
        """All evidence on the table, in reading order."""
        return [each for row in self.rows for cell in row for each in cell.evidence] + [*self.below]

    @property
    def study_runs(self) -> list[list[str]]:
        """The arguments of `normlab study run` for each study whose scores the table shows.

        Raises UserError if the table shows no scores of runs.
        """
        rows: dict[str, list[str]] = {}
        points: dict[str, set[str]] = {}
        for needed in filter(None, (each.study_rows for each in self.evidence)):
            rows.setdefault(needed.study, []).extend(needed.rows)
            points.setdefault(needed.study, set()).add(needed.point)
        if not rows:
            raise UserError(
                "no cell of this table is a score of training runs; normlab claims N shows what "
                "its cells rest on"
            )
        studies: list[list[str]] = []
        for study, names in rows.items():
            listed = ",".join(f"'{name}'" for name in dict.fromkeys(names))
            point = points[study] if len(points[study]) == 1 else ()
            studies.append([study, f"rows=[{listed}]", *filter(None, point)])
        return studies


class Passage(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A sentence of an article and the evidence on it, or a table, or a live piece.

    `command` is a command to type, shown in addition to those that the evidence suggests.
    """

    zh: str = ""
    en: str = ""
    evidence: tuple[Evidence, ...] = ()
    command: str = ""
    table: str = ""
    piece: str = ""

    def __post_init__(self) -> None:
        """Raise WrongField unless it is exactly one of a sentence, a table and a live piece."""
        if sum([bool(self.zh and self.en), bool(self.table), bool(self.piece)]) != 1:
            raise WrongField("", "needs zh and en, or a table, or a piece")
        if self.piece and self.piece not in PIECES:
            raise WrongField("piece", f"choose from {', '.join(PIECES)}")


class ArticleSection(Struct, frozen=True, forbid_unknown_fields=True):
    """A section of an article: its title and passages."""

    title: Words
    body: tuple[Passage, ...]


class Sentence(NamedTuple):
    """A sentence of an article or a cell of its tables, with its evidence.

    `place` is the title of its section or table.
    """

    article: int
    place: str
    zh: str
    en: str
    evidence: tuple[Evidence, ...]


class Article(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An article. `id` is its number in docs/explanation/verdicts.md."""

    id: int
    title: Words
    tables: dict[str, ArticleTable]
    sections: tuple[ArticleSection, ...] = ()

    def __post_init__(self) -> None:
        """Raise WrongField if a section refers to a table that does not exist."""
        for number, section in enumerate(self.sections):
            for place, passage in enumerate(section.body):
                if passage.table and passage.table not in self.tables:
                    at = f"sections[{number}].body[{place}].table"
                    raise WrongField(at, f"choose from {', '.join(self.tables)}")

    def table(self, name: str) -> ArticleTable:
        """Return a table. For an unknown name, raise a UserError that lists all tables."""
        if name not in self.tables:
            names = ", ".join(self.tables) or "none"
            raise UserError(f"article {self.id} has no table {name!r}; choose from {names}")
        return self.tables[name]

    def sentences(self) -> Iterator[Sentence]:
        """Yield the sentences and the cells of tables in the order of the article."""
        for section in self.sections:
            for passage in section.body:
                if passage.table:
                    yield from self._cells(self.tables[passage.table])
                elif not passage.piece:
                    place = section.title.text(ENGLISH)
                    yield Sentence(self.id, place, passage.zh, passage.en, passage.evidence)

    def _cells(self, table: ArticleTable) -> Iterator[Sentence]:
        """Yield the cells of a table, each preceded by the names of its row and column."""
        place = table.title.text(ENGLISH)
        for name, *cells in table.rows:
            for column, cell in zip(table.columns[1:], cells, strict=True):
                zh = f"{name.zh}，{column.zh}：{cell.zh}"
                names = f"{name.text(ENGLISH)}, {column.text(ENGLISH)}"
                en = f"{names}: {cell.text(ENGLISH)}"
                yield Sentence(self.id, place, zh, en, cell.evidence)


def load_all(folder: Path) -> dict[int, Article]:
    """Return all articles in a folder, keyed by number. Raise UserError for an invalid file."""
    articles = [load(path) for path in sorted(folder.glob("*.yaml"))]
    return {article.id: article for article in articles}


def load(path: Path) -> Article:
    """Read an article.

    Raises a UserError with the file, the key and the expected value if the file is invalid.
    """
    article = convert(read_yaml(path), Article, path)
    if path.stem != str(article.id):
        raise UserError(f"{path}: id is {article.id}, so the file's name must be {article.id}.yaml")
    return article
