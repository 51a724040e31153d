"""The data of the interactive page: what `interactive_page.py` writes and `templates/dom.js` reads.

The page has at most 250,000 bytes, so sentences and explanations are rows of values, and the names
of their values are written once, in `columns`: by the kind of an explanation, and for a `sentence`.
The classes of `explanation.py` and `SentenceRow` are these columns; one function of `dom.js` makes
objects of the rows, and has the same types. Empty values at the end of a row are left out.

What several sentences share is in a list of `PageData`, and named by its number there. A `Pair` is
a text in Chinese and in English, or once if it is the same in both: `["一", "one"]`.
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
"""The number of an explanation, alone or with that of the subject that it is about."""
Row = list[Any]
"""The values of a sentence, or the kind of an explanation and its values, without empty ones at the
end: `SentenceRow`, and the classes of `explanation.py` with numbers for shared values."""
T = TypeVar("T")


class SentenceRow(Struct, frozen=True, array_like=True):
    """A sentence of an article or a cell of its tables, its explanations, and a command to try.

    `claims` are those whose answers fit the sentence. `verdict` is omitted if it equals the first
    explanation's.
    """

    text: Pair
    explanations: tuple[Reference, ...] = ()
    claims: tuple[int, ...] = ()
    verdict: str = ""
    command: str = ""


class PageTable(Struct, frozen=True):
    """A table of an article; `below` explains it as a whole."""

    title: Pair
    columns: list[Pair]
    rows: list[list[Row]]
    below: list[Reference]


class TablePlace(Struct, frozen=True):
    """Where a table is in a section, by its name."""

    table: str


class PiecePlace(Struct, frozen=True):
    """Where a live piece is in a section, by its name."""

    piece: str


class PageSection(Struct, frozen=True):
    """A section of an article: its sentences, tables and live pieces."""

    title: Pair
    body: list[Row | TablePlace | PiecePlace]


class PageArticle(Struct, frozen=True):
    """An article, with its tables by name."""

    id: int
    title: Pair
    tables: dict[str, PageTable]
    sections: list[PageSection]


class PageData(Struct):
    """What the page shows of articles; entries of lists are named by their numbers.

    `explanations` open below sentences; `claims` has the answers to whole claims by number,
    `findings` what checks found, `grades` those of evidence, `studies` STUDY/SCALE, and `subjects`
    the words of a sentence that an explanation is about.
    """

    columns: dict[str, tuple[str, ...]]
    articles: list[PageArticle] = field(default_factory=list[PageArticle])
    explanations: list[Row] = field(default_factory=list[Row])
    claims: dict[int, Pair] = field(default_factory=dict[int, Pair])
    findings: list[Pair] = field(default_factory=list[Pair])
    grades: list[Pair] = field(default_factory=list[Pair])
    studies: list[str] = field(default_factory=list[str])
    subjects: list[Pair] = field(default_factory=list[Pair])


def page_data(articles: Iterable[Article], results: Results) -> PageData:
    """Return the data of some articles.

    Raises UserError if evidence that one names does not exist.
    """
    maker = _Maker(results)
    for article in articles:
        maker.data.articles.append(maker.article(article))
    return maker.data


def _columns() -> dict[str, tuple[str, ...]]:
    """Return the names of the values of an explanation, by its kind, and of a sentence."""
    kinds = {kind.__struct_config__.tag: kind.__struct_fields__ for kind in get_args(Explanation)}
    return {**kinds, "sentence": SentenceRow.__struct_fields__}


class _Maker:
    """Makes the data of articles; each explanation is listed once."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.data = PageData(_columns())
        self._numbers: dict[Evidence, int] = {}

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
        if whole == SentenceVerdict.of(evidence[:1], self.results).verdict:
            whole = ""
        claims = self._whole_claims(evidence)
        return _trimmed(to_builtins(SentenceRow(text, references, claims, whole, command)))

    def _reference(self, evidence: Evidence) -> Reference:
        number = self._number_of_explanation(evidence)
        if evidence.about is None:
            return number
        return number, _number(self.data.subjects, in_both(evidence.about.text))

    def _number_of_explanation(self, evidence: Evidence) -> int:
        """Return the number of an explanation. It is the same whichever words it is about."""
        evidence = evidence.about_everything
        if evidence not in self._numbers:
            self._numbers[evidence] = len(self.data.explanations)
            self.data.explanations.append(self._row(evidence.explanation(self.results)))
        return self._numbers[evidence]

    def _row(self, explanation: Explanation) -> Row:
        """Return the kind and the values of an explanation. Shared values are numbers."""
        kind, values = explanation.__struct_config__.tag, structs.asdict(explanation)
        if values.get("grade") is not None:
            values["grade"] = _number(self.data.grades, values["grade"])
        if "study" in values:
            values["study"] = _number(self.data.studies, values["study"])
        if "findings" in values:
            values["findings"] = [_number(self.data.findings, each) for each in values["findings"]]
        return _trimmed([kind, *values.values()])

    def _whole_claims(self, evidence: Iterable[Evidence]) -> tuple[int, ...]:
        """Return the claims whose answers fit a sentence.

        These are the claims at least half of whose parts the sentence refers to. If a sentence is
        about one fact of many, the answer to the whole claim would not fit it.
        """
        parts = dict.fromkeys(part for each in evidence for part in each.parts)
        referred = Counter(self.results.claim_of(part).id for part in parts)
        ledger = self.results.claims
        fitting = [claim for claim, n in referred.items() if 2 * n >= len(ledger[claim].parts)]
        for claim in fitting:
            self.data.claims[claim] = both_of(ledger[claim].chinese_answer, ledger[claim].answer)
        return tuple(fitting)


def _number(known: list[T], entry: T) -> int:
    """Return the index of an entry in a list; append the entry if it is new."""
    if entry not in known:
        known.append(entry)
    return known.index(entry)


def _trimmed(row: Row) -> Row:
    """Return a row without empty values at its end."""
    while row[-1] in ("", None, []):
        row.pop()
    return row
