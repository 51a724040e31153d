"""The data of the interactive page: what `interactive_page.py` writes and `templates/dom.js` reads.

The page may have at most 250,000 bytes. Therefore sentences and explanations are rows of values
without names. `columns` has the names: the fields of each class in `explanation.py`, keyed by the
kind of explanation, and those of `SentenceRow`, keyed `sentence`. `dom.js` turns the rows back into
objects. Empty values at the end of a row are left out.

Values that several sentences share are in lists of `PageData`, and a row has their index. A `Pair`
is a text in Chinese and in English, or a single text if both are the same: `["一", "one"]`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, get_args

from msgspec import Struct, field, structs, to_builtins

from normlab.articles.article import Article, ArticleTable, Passage
from normlab.articles.evidence_kinds import Evidence
from normlab.articles.explanation import Explanation, Pair, both_of, in_both
from normlab.articles.results import Results
from normlab.articles.sentence_verdict import SentenceVerdict

Reference = int | tuple[int, int]
"""The index of an explanation or, if it is about some words, its index and the words' index."""
Row = list[Any]
"""The values of a `SentenceRow`, or of an explanation, after the index of its kind in `columns`.

Shared values are indices, and empty values at the end are left out.
"""
T = TypeVar("T")


class SentenceRow(Struct, frozen=True, array_like=True):
    """A sentence of an article or a cell of its tables.

    `claims` are the claims whose answers fit the sentence. `verdict` is the index of the verdict's
    name, or None if the first explanation has the same verdict. `command` is a command to type.
    """

    text: Pair
    explanations: tuple[Reference, ...] = ()
    claims: tuple[int, ...] = ()
    verdict: int | None = None
    command: str = ""


class PageTable(Struct, frozen=True):
    """A table of an article. `below` has the explanations of the table as a whole."""

    title: Pair
    columns: list[Pair]
    rows: list[list[Row]]
    below: list[Reference]


class TablePlace(Struct, frozen=True):
    """The place of a table in a section. `table` is its name."""

    table: str


class PiecePlace(Struct, frozen=True):
    """The place of a live piece in a section. `piece` is its name."""

    piece: str


class PageSection(Struct, frozen=True):
    """A section of an article: its sentences, tables and live pieces."""

    title: Pair
    body: list[Row | TablePlace | PiecePlace]


class PageArticle(Struct, frozen=True):
    """An article. `tables` are keyed by name."""

    id: int
    title: Pair
    tables: dict[str, PageTable]
    sections: list[PageSection]


class PageData(Struct):
    """What the page shows of articles. Rows refer to entries of the lists by index.

    `explanations` open below sentences. `claims` has the answers to whole claims, keyed by number.
    The other lists have values that explanations share: the `findings` of checks, the `grades` of
    evidence, the `studies` (STUDY/SCALE), the `verdict_names`, and as `subjects` the words that an
    explanation is about.
    """

    columns: dict[str, tuple[str, ...]]
    articles: list[PageArticle] = field(default_factory=list[PageArticle])
    explanations: list[Row] = field(default_factory=list[Row])
    claims: dict[int, Pair] = field(default_factory=dict[int, Pair])
    findings: list[Pair] = field(default_factory=list[Pair])
    grades: list[Pair] = field(default_factory=list[Pair])
    studies: list[str] = field(default_factory=list[str])
    verdict_names: list[str] = field(default_factory=list[str])
    subjects: list[Pair] = field(default_factory=list[Pair])


def page_data(articles: Iterable[Article], results: Results) -> PageData:
    """Return the data of some articles.

    Raises UserError if evidence that they refer to does not exist.
    """
    maker = _Maker(results)
    for article in articles:
        maker.data.articles.append(maker.article(article))
    return maker.data


def _columns() -> dict[str, tuple[str, ...]]:
    """Return the names of the values in each kind of explanation, and in a sentence."""
    kinds = {kind.__struct_config__.tag: kind.__struct_fields__ for kind in get_args(Explanation)}
    return {**kinds, "sentence": SentenceRow.__struct_fields__}


class _Maker:
    """Makes the data of articles. Sentences with the same evidence share an explanation."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.data = PageData(_columns())
        self._indices: dict[Evidence, int] = {}

    def article(self, article: Article) -> PageArticle:
        return PageArticle(
            article.id,
            in_both(article.title.text),
            {name: self._table(table) for name, table in article.tables.items()},
            [
                PageSection(in_both(section.title.text), list(map(self._passage, section.body)))
                for section in article.sections
            ],
        )

    def _table(self, table: ArticleTable) -> PageTable:
        return PageTable(
            in_both(table.title.text),
            [in_both(words.text) for words in table.columns],
            [
                [self._sentence(in_both(cell.text), cell.evidence) for cell in row]
                for row in table.rows
            ],
            [self._reference(each) for each in table.below],
        )

    def _passage(self, passage: Passage) -> Row | TablePlace | PiecePlace:
        if passage.table:
            return TablePlace(passage.table)
        if passage.piece:
            return PiecePlace(passage.piece)
        return self._sentence(both_of(passage.zh, passage.en), passage.evidence, passage.command)

    def _sentence(self, text: Pair, evidence: Sequence[Evidence], command: str = "") -> Row:
        references = tuple(map(self._reference, evidence))
        whole = SentenceVerdict.of(evidence, self.results).verdict
        is_of_first = whole == SentenceVerdict.of(evidence[:1], self.results).verdict
        verdict = None if is_of_first else _index(self.data.verdict_names, whole)
        claims = self._whole_claims(evidence)
        return _trimmed(to_builtins(SentenceRow(text, references, claims, verdict, command)))

    def _reference(self, evidence: Evidence) -> Reference:
        index = self._index_of_explanation(evidence)
        if evidence.about is None:
            return index
        return index, _index(self.data.subjects, in_both(evidence.about.text))

    def _index_of_explanation(self, evidence: Evidence) -> int:
        """Return the index of an explanation, whichever words of the sentence it is about."""
        evidence = evidence.about_everything
        if evidence not in self._indices:
            self._indices[evidence] = len(self.data.explanations)
            self.data.explanations.append(self._row(evidence.explanation(self.results)))
        return self._indices[evidence]

    def _row(self, explanation: Explanation) -> Row:
        """Return the kind and the values of an explanation, with indices for shared values."""
        kind, values = str(explanation.__struct_config__.tag), structs.asdict(explanation)
        if values.get("grade") is not None:
            values["grade"] = _index(self.data.grades, values["grade"])
        if "verdict" in values:
            values["verdict"] = _index(self.data.verdict_names, values["verdict"])
        if "study" in values:
            values["study"] = _index(self.data.studies, values["study"])
        if "findings" in values:
            values["findings"] = [_index(self.data.findings, each) for each in values["findings"]]
        return _trimmed([[*self.data.columns].index(kind), *values.values()])

    def _whole_claims(self, evidence: Iterable[Evidence]) -> tuple[int, ...]:
        """Return the claims whose whole answer fits a sentence.

        It fits if the sentence refers to at least half of the claim's parts.
        """
        parts = dict.fromkeys(part for each in evidence for part in each.parts)
        referred = Counter(self.results.claim_of(part).id for part in parts)
        ledger = self.results.claims
        fitting = [claim for claim, n in referred.items() if 2 * n >= len(ledger[claim].parts)]
        for claim in fitting:
            self.data.claims[claim] = both_of(ledger[claim].chinese_answer, ledger[claim].answer)
        return tuple(fitting)


def _index(known: list[T], entry: T) -> int:
    """Return the index of an entry in a list, appending the entry if it is new."""
    if entry not in known:
        known.append(entry)
    return known.index(entry)


def _trimmed(row: Row) -> Row:
    """Return a row without empty values at its end."""
    while row[-1] in ("", None, []):
        row.pop()
    return row
