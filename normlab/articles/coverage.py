"""What was found on each sentence and cell of the articles, and what is open, and why.

`page` returns it as Markdown (`results/sentences.md`): the counts, each sentence without a full
answer with the reason and the command that would give it, and the whole list.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from normlab.articles.article import Article
from normlab.articles.evidence import CheckItem, Item, PartItem, RowItem
from normlab.articles.language import ENGLISH
from normlab.articles.layout import filled
from normlab.articles.results import Results
from normlab.formats import pipes
from normlab.records.labels import in_markdown

STATES = {
    "answered": "every question that it raises is decided, either way",
    "answered in part": "some are decided, others are open or not tested",
    "open": "runs were made, but do not decide it",
    "not tested": "no run or source is there yet",
    "numbers": "what was measured is shown, without a verdict",
    "remark": "there is nothing to measure; the reason is given",
    "nothing": "it states nothing that can be checked, such as the numbers of an example",
}
"""How far a sentence is answered, and what that means."""
_DECIDED = ("supported", "contradicted", "no difference")
_LACKING = [state for state in STATES if state not in ("answered", "nothing")]


class Sentence(NamedTuple):
    """A sentence or a cell: its article's number, place and words, and what was found on it."""

    article: int
    place: str
    zh: str
    en: str
    evidence: tuple[Item, ...]

    def state(self, results: Results) -> str:
        """Return how far the sentence is answered, one of `STATES`."""
        judged = [item for item in self.evidence if isinstance(item, (PartItem, CheckItem))]
        verdicts = [_verdict(item, results) for item in judged]
        decided = [verdict in _DECIDED for verdict in verdicts]
        if decided and any(decided):
            return "answered" if all(decided) else "answered in part"
        if verdicts:
            return "open" if "undecided" in verdicts else "not tested"
        if any(isinstance(item, RowItem) for item in self.evidence):
            return "numbers"
        return "remark" if self.evidence else "nothing"

    def open_parts(self, results: Results) -> list["OpenPart"]:
        """Return the parts that are missing for a full answer."""
        return [
            OpenPart.of(item, results)
            for item in self.evidence
            if isinstance(item, PartItem) and _verdict(item, results) not in _DECIDED
        ]


class OpenPart(NamedTuple):
    """A part that is not decided: its place, what it says, what was found, what would decide it."""

    claim: str
    place: str
    verdict: str
    statement: str
    finding: str
    command: str
    cost: str

    @classmethod
    def of(cls, item: PartItem, results: Results) -> "OpenPart":
        part = results.part(item.part)
        measured = part["n"] or part["excluded"] or not part["to_measure"]
        return cls(
            claim=item.part.partition(".")[0],
            place=item.place(results),
            verdict=part["verdict"],
            statement=part["statement"],
            finding=part["found"] if measured else "",
            command=part["to_measure"],
            cost=part["cost"],
        )


def sentences(article: Article) -> Iterator[Sentence]:
    """Yield an article's sentences and the cells of its tables, in its own order."""
    for section in article.sections:
        title = section.title.text(ENGLISH)
        for passage in section.body:
            if passage.table:
                table = article.tables[passage.table]
                place = table.title.text(ENGLISH)
                for name, *cells in table.rows:
                    for column, cell in zip(table.columns[1:], cells, strict=True):
                        at = f"{name.text(ENGLISH)}, {column.text(ENGLISH)}: "
                        texts = f"{name.zh}，{column.zh}：{cell.zh}", at + cell.text(ENGLISH)
                        yield Sentence(article.id, place, *texts, cell.ours)
            elif not passage.piece:
                yield Sentence(article.id, title, passage.zh, passage.en, passage.ours)


def page(articles: Iterable[Article], results: Results) -> str:
    """Return the page; UserError if evidence that an article names does not exist."""
    stated = [(each, each.state(results)) for article in articles for each in sentences(article)]
    rows: dict[int, list[list[str]]] = {}
    for each, state in stated:
        rows.setdefault(each.article, []).append(_row(each, state, results))
    values = {
        "counts": _markdown(*_counts(stated), words=1),
        "lacking": [
            (state, STATES[state], chosen)
            for state in _LACKING
            if (chosen := [_lacks(each, results) for each, its in stated if its == state])
        ],
        "tables": [
            (number, _markdown(_COLUMNS, of_article, words=len(_COLUMNS)))
            for number, of_article in rows.items()
        ],
    }
    return filled("sentences.md", values).rstrip() + "\n"


def _lacks(sentence: Sentence, results: Results) -> tuple[Sentence, list[OpenPart], list[str]]:
    """Return a sentence with the parts that are open; without any, with its other evidence."""
    parts, others = sentence.open_parts(results), sentence.evidence
    texts = [item.text(results, ENGLISH) for item in others if not isinstance(item, PartItem)]
    return sentence, parts, [] if parts else texts


def _row(sentence: Sentence, state: str, results: Results) -> list[str]:
    evidence = [in_markdown(item.short(results, ENGLISH)) for item in sentence.evidence]
    cells = (sentence.place, sentence.zh, sentence.en, state)
    return [*map(in_markdown, cells), "<br>".join(evidence)]


_COLUMNS = ("place", "Chinese", "English", "answered?", "found")


def _counts(stated: list[tuple[Sentence, str]]) -> tuple[list[str], list[list[str]]]:
    """Return a table of how many sentences of each article are answered, and how far."""
    numbers = list(dict.fromkeys(each.article for each, _ in stated))
    counts = Counter((each.article, state) for each, state in stated)
    rows: list[list[str]] = []
    for state, meaning in STATES.items():
        row = [counts[number, state] for number in numbers]
        rows.append([state, *map(str, row), str(sum(row)), meaning])
    row = [sum(counts[number, state] for state in STATES) for number in numbers]
    head = ["", *(f"article {number}" for number in numbers), "all", "meaning"]
    return head, [*rows, ["all", *map(str, row), str(sum(row)), ""]]


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> str:
    return "\n".join(pipes(head, rows, words=words)).rstrip()


def _verdict(item: PartItem | CheckItem, results: Results) -> str:
    return (
        item.verdict(results) if isinstance(item, CheckItem) else results.part(item.part)["verdict"]
    )
