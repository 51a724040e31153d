"""Lists what was found on each sentence and cell of the articles, what is open, and why.

`sentences_text` returns the page `results/sentences.md`. It has the counts, then the sentences
without a full answer, with the reasons and the commands that would answer them, and then all
sentences.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from normlab.articles.article import Article, Sentence
from normlab.articles.results import Results
from normlab.articles.sentence_verdict import STATES, SentenceVerdict
from normlab.claims.in_words.language import ENGLISH
from normlab.claims.verdict import DECIDED
from normlab.formats import pipes
from normlab.records.labels import in_markdown
from normlab.templates import environment

_WITHOUT_FULL_ANSWER = [state for state in STATES if state not in ("answered", "nothing")]
_COLUMNS = ("place", "Chinese", "English", "answered?", "found")


class OpenPart(NamedTuple):
    """A part that is not decided. `command` would decide it, and `cost` is what that takes."""

    claim: int
    place: str
    verdict: str
    statement: str
    finding: str
    command: str
    cost: str

    @classmethod
    def of(cls, name: str, results: Results) -> "OpenPart":
        part = results.part(name)
        measured = part.n or part.excluded or not part.to_measure
        return cls(
            claim=results.claim_of(name).id,
            place=results.place(name),
            verdict=part.verdict,
            statement=part.statement,
            finding=part.finding if measured else "",
            command=part.to_measure,
            cost=part.cost,
        )


def open_parts(sentence: Sentence, results: Results) -> list[OpenPart]:
    """Return the undecided parts, which a full answer would need."""
    names = [name for each in sentence.evidence for name in each.parts]
    return [OpenPart.of(x, results) for x in names if results.part(x).verdict not in DECIDED]


def sentences_text(articles: Iterable[Article], results: Results) -> str:
    """Return the page. Raise UserError if evidence that an article refers to does not exist."""
    states = [
        (each, SentenceVerdict.of(each.evidence, results).state)
        for article in articles
        for each in article.sentences()
    ]
    rows: dict[int, list[list[str]]] = {}
    for sentence, state in states:
        rows.setdefault(sentence.article, []).append(_row(sentence, state, results))
    values = {
        "counts": _table(*_counts(states), words=1),
        "lacking": [
            (state, STATES[state], lacking)
            for state in _WITHOUT_FULL_ANSWER
            if (lacking := [_what_lacks(each, results) for each, its in states if its == state])
        ],
        "tables": [
            (article, _table(_COLUMNS, of_article, words=len(_COLUMNS)))
            for article, of_article in rows.items()
        ],
    }
    template = environment("normlab.articles").get_template("sentences.md")
    return template.render(values).rstrip() + "\n"


def _what_lacks(sentence: Sentence, results: Results) -> tuple[Sentence, list[OpenPart], list[str]]:
    """Return a sentence with its open parts or, if it has none, with the texts of its evidence."""
    parts = open_parts(sentence, results)
    texts = [] if parts else [each.cell_text(results, ENGLISH).text for each in sentence.evidence]
    return sentence, parts, texts


def _row(sentence: Sentence, state: str, results: Results) -> list[str]:
    texts = [in_markdown(each.cell(results, ENGLISH).line) for each in sentence.evidence]
    cells = (sentence.place, sentence.zh, sentence.en, state)
    return [*map(in_markdown, cells), "<br>".join(texts)]


def _counts(states: list[tuple[Sentence, str]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table: how many sentences of an article have a state."""
    articles = list(dict.fromkeys(sentence.article for sentence, _ in states))
    counts = Counter((sentence.article, state) for sentence, state in states)
    rows: list[list[str]] = []
    for state, meaning in STATES.items():
        row = [counts[article, state] for article in articles]
        rows.append([state, *map(str, row), str(sum(row)), meaning])
    row = [sum(counts[article, state] for state in STATES) for article in articles]
    head = ["", *(f"article {article}" for article in articles), "all", "meaning"]
    return head, [*rows, ["all", *map(str, row), str(sum(row)), ""]]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> str:
    return "\n".join(pipes(head, rows, words=words)).rstrip()
