"""Builds the data of the interactive page, in the form that `templates/dom.js` reads.

A `Pair` is a text in Chinese and in English, or once if it is the same in both: `["一", "one"]`.
Entries that several sentences share are in lists, and sentences refer to them by number:

articles       each with its `id`, `title`, `tables` by name and `sections`; the body of a section
               has sentences, and `{"table": NAME}` or `{"piece": NAME}` in their place
explanations   what opens below sentences, in the order in which the articles need it
claims         the answers to whole claims, by number
findings       what checks found
grades         the grades of evidence
studies        STUDY/SCALE
subjects       the words of a sentence that an explanation is about
columns        the names of the values of a sentence, and of an explanation by its kind

A sentence, and a cell of a table, is a list of values: `SentenceRow`. So is an explanation, after
its kind: `["runs", statement, claim, ...]`, one of the classes of `explanation.py`, with numbers
for its findings, grade and study. Empty values at the end of a list are left out. An explanation is
named by its number, or by `[NUMBER, SUBJECT]`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from normlab.articles.article import Article, ArticleTable, Passage
from normlab.articles.evidence import Evidence
from normlab.articles.explanation import Explanation, Pair, both_of, in_both
from normlab.articles.results import Results
from normlab.claims.verdict import combined_verdict

if TYPE_CHECKING:
    from normlab.claims.verdict import Verdict

Reference = int | tuple[int, int]
"""The number of an explanation, alone or with the number of the words that it is about."""
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


class PageData:
    """What the page shows of the articles that are added to it; see the module for its form."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.articles: list[dict[str, Any]] = []
        self.explanations: list[list[Any]] = []
        self.claims: dict[int, Pair] = {}
        self.findings: list[Pair] = []
        self.grades: list[Pair] = []
        self.studies: list[str] = []
        self.subjects: list[Pair] = []
        self._numbers: dict[Evidence, int] = {}

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The names of the values of an explanation, by its kind, and of a sentence."""
        kinds = {
            kind.__struct_config__.tag: kind.__struct_fields__ for kind in get_args(Explanation)
        }
        return {**kinds, "sentence": SentenceRow.__struct_fields__}

    def add(self, article: Article) -> None:
        self.articles.append(self._article(article))

    def to_json(self) -> dict[str, Any]:
        """Return the data by the names that the module lists, as plain values."""
        return {
            "columns": self.columns,
            "articles": self.articles,
            "explanations": self.explanations,
            "claims": self.claims,
            "findings": self.findings,
            "grades": self.grades,
            "studies": self.studies,
            "subjects": self.subjects,
        }

    def _article(self, article: Article) -> dict[str, Any]:
        return {
            "id": article.id,
            "title": in_both(article.title.text),
            "tables": {name: self._table(table) for name, table in article.tables.items()},
            "sections": [
                {
                    "title": in_both(section.title.text),
                    "body": [self._passage(passage) for passage in section.body],
                }
                for section in article.sections
            ],
        }

    def _table(self, table: ArticleTable) -> dict[str, Any]:
        return {
            "title": in_both(table.title.text),
            "columns": [in_both(words.text) for words in table.columns],
            "rows": [
                [self._sentence(in_both(cell.text), cell.evidence) for cell in row]
                for row in table.rows
            ],
            "below": [self._reference(each) for each in table.below],
        }

    def _passage(self, passage: Passage) -> dict[str, str] | list[Any]:
        if passage.table or passage.piece:
            return {"table": passage.table} if passage.table else {"piece": passage.piece}
        text = both_of(passage.zh, passage.en)
        return self._sentence(text, passage.evidence, passage.command)

    def _sentence(self, text: Pair, evidence: Sequence[Evidence], command: str = "") -> list[Any]:
        references = tuple(map(self._reference, evidence))
        whole = verdict_of_sentence(evidence, self.results)
        if whole == verdict_of_sentence(evidence[:1], self.results):
            whole = ""
        claims = self._whole_claims(evidence)
        return _trimmed(msgspec.to_builtins(SentenceRow(text, references, claims, whole, command)))

    def _reference(self, evidence: Evidence) -> Reference:
        number = self._number_of_explanation(evidence)
        if evidence.about is None:
            return number
        return number, _number(self.subjects, in_both(evidence.about.text))

    def _number_of_explanation(self, evidence: Evidence) -> int:
        """Return the number of an explanation, regardless of the words that it is about."""
        evidence = evidence.about_everything
        if evidence not in self._numbers:
            self._numbers[evidence] = len(self.explanations)
            self.explanations.append(self._explanation(evidence.explanation(self.results)))
        return self._numbers[evidence]

    def _explanation(self, explanation: Explanation) -> list[Any]:
        """Return the kind and the values of an explanation. Shared values are numbers."""
        kind, values = explanation.__struct_config__.tag, msgspec.structs.asdict(explanation)
        if values.get("grade") is not None:
            values["grade"] = _number(self.grades, values["grade"])
        if "study" in values:
            values["study"] = _number(self.studies, values["study"])
        if "findings" in values:
            values["findings"] = [_number(self.findings, each) for each in values["findings"]]
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
            self.claims[claim] = both_of(ledger[claim].chinese_answer, ledger[claim].answer)
        return tuple(fitting)


def verdict_of_sentence(evidence: Iterable[Evidence], results: Results) -> str:
    """Return the verdict on a sentence, from the parts and checks that it refers to, or "".

    Unlike a claim, a sentence is supported only if nothing that it refers to is open.
    """
    verdicts: list[Verdict] = [v for each in evidence if (v := each.verdict(results)) is not None]
    if not verdicts:
        return ""
    whole = combined_verdict(verdicts)
    all_supported = set(verdicts) == {"supported"}
    return "mixed" if whole == "supported" and not all_supported else whole


def _number(known: list[T], entry: T) -> int:
    """Return the number of an entry of a list. A new entry is appended."""
    if entry not in known:
        known.append(entry)
    return known.index(entry)


def _trimmed(row: list[Any]) -> list[Any]:
    """Return a row without empty values at its end."""
    while row[-1] in ("", None, []):
        row.pop()
    return row
