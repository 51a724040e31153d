"""What was found on each sentence and cell of the articles, and what is open, and why.

`page` returns it as Markdown (`results/sentences.md`): the counts, each sentence without a full
answer with the reason and the command that would give it, and the whole list.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from normlab.documents.article import Article
from normlab.documents.evidence import CheckItem, Item, PartItem, Results, RowItem
from normlab.documents.language import ENGLISH
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

    def why(self, results: Results) -> list[str]:
        """Return what is missing for a full answer: a line for each part that is not decided."""
        return [
            _lacks(item, results.part(item.part))
            for item in self.evidence
            if isinstance(item, PartItem) and _verdict(item, results) not in _DECIDED
        ] or [
            item.text(results, ENGLISH) for item in self.evidence if not isinstance(item, PartItem)
        ]


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
    listed = [each for article in articles for each in sentences(article)]
    stated = [(each, each.state(results)) for each in listed]
    lines = [*_HEAD, *_counts(stated), "## Without a full answer, and why", ""]
    for state in _LACKING:
        chosen = [each for each, state_of_it in stated if state_of_it == state]
        if chosen:
            lines += [f"### {state.capitalize()} ({len(chosen)}): {STATES[state]}", ""]
            for each in chosen:
                lines.append(f"- Article {each.article}, {each.place}: {each.en} ({each.zh})")
                lines += [f"  - {why}" for why in each.why(results)]
            lines.append("")
    lines += ["## All sentences", ""]
    for number in dict.fromkeys(each.article for each in listed):
        rows = [_row(each, state, results) for each, state in stated if each.article == number]
        lines += [f"### Article {number}", "", *pipes(_COLUMNS, rows, words=len(_COLUMNS))]
    return "\n".join(lines).rstrip() + "\n"


def _row(sentence: Sentence, state: str, results: Results) -> list[str]:
    evidence = [in_markdown(item.short(results, ENGLISH)) for item in sentence.evidence]
    cells = (sentence.place, sentence.zh, sentence.en, state)
    return [*map(in_markdown, cells), "<br>".join(evidence)]


_HEAD = (
    "# The five articles, sentence by sentence",
    "",
    "Each sentence of the five articles, and each cell of their tables, with what was found on it",
    "and what is lacking. [The page to play with](../docs/play/index.html) has it, too.",
    "`normlab documents --markdown` prints this page; [2.1] is part 1 of",
    "[claim 2](claims.md#claim-2), and `normlab claims 2` prints it.",
    "",
)
_COLUMNS = ("place", "Chinese", "English", "answered?", "found")


def _counts(stated: list[tuple[Sentence, str]]) -> list[str]:
    numbers = list(dict.fromkeys(each.article for each, _ in stated))
    counts = Counter((each.article, state) for each, state in stated)
    head = ["", *(f"article {number}" for number in numbers), "all", "meaning"]
    rows: list[list[str]] = []
    for state, meaning in STATES.items():
        row = [counts[number, state] for number in numbers]
        rows.append([state, *map(str, row), str(sum(row)), meaning])
    row = [sum(counts[number, state] for state in STATES) for number in numbers]
    return pipes(head, [*rows, ["all", *map(str, row), str(sum(row)), ""]], words=1)


def _verdict(item: PartItem | CheckItem, results: Results) -> str:
    return (
        item.verdict(results) if isinstance(item, CheckItem) else results.part(item.part)["verdict"]
    )


def _lacks(item: PartItem, part: Mapping[str, Any]) -> str:
    """Return a part that is not decided: what it says, what was found, and what would decide it."""
    claim = item.part.partition(".")[0]
    place = f"[{claim}.{part['part']}](claims.md#claim-{claim})"
    text = f"{place} {part['verdict']}: {part['statement']}"
    command = part["to_measure"]
    if part["n"] or part["excluded"] or not command:
        text += f" Found: {part['found']}."
    if command:
        return f"{text} To decide it: `{command}` ({part['cost']})"
    return f"{text} No planned run decides it."
