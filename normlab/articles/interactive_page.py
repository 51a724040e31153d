"""The interactive page: the articles sentence by sentence, and live pieces.

`html` fills `page.html` in `templates/` with the style, scripts and words there, and with the data:
what was found on each sentence, and what the live pieces start from. It needs no other file.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec
import yaml
from msgspec import Struct

from normlab.articles.answer import Answer, Pair, both_of, in_both
from normlab.articles.article import Article, ArticleTable, Passage
from normlab.articles.evidence import Evidence
from normlab.articles.language import CHINESE, ENGLISH
from normlab.articles.results import Results
from normlab.claims.verdict import combined_verdict
from normlab.templates import environment

if TYPE_CHECKING:
    from normlab.claims.verdict import Verdict

SCRIPTS = (
    *("norms.js", "dom.js", "asked.js", "reading.js"),
    *("tensor.js", "words.js", "padding.js", "marks.js", "start.js"),
)
"""The scripts in `templates/`, in the order in which the page has them."""
_LINE = 4000
"""Data with at least this many characters get their own line, so that changes merge."""
Reference = int | tuple[int, int]
"""The number of an answer, alone or with the number of the words that the answer is about."""
T = TypeVar("T")


class SentenceRow(Struct, frozen=True, array_like=True):
    """A sentence of an article or a cell of its tables, its answers, and a command to try.

    `claims` are those whose answers fit the sentence. `verdict` is left out if it is that of the
    first answer.
    """

    text: Pair
    answers: tuple[Reference, ...] = ()
    claims: tuple[int, ...] = ()
    verdict: str = ""
    command: str = ""


class PageData:
    """The data of the page. What several sentences share is in a list, and named by its number.

    `answers` are in the order in which the articles need them, `claims` has the answers to whole
    claims; findings of checks, grades, studies (STUDY/SCALE) and `subjects`, the words of a
    sentence that an answer is about, are shared by answers. Sentences and answers are lists of
    values; `columns` names them.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self.answers: list[list[Any]] = []
        self.claims: dict[int, Pair] = {}
        self.findings: list[Pair] = []
        self.grades: list[Pair] = []
        self.studies: list[str] = []
        self.subjects: list[Pair] = []
        self._numbers: dict[Evidence, int] = {}

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The names of the values of an answer, by its kind, and of a sentence."""
        kinds = {kind.__struct_config__.tag: kind.__struct_fields__ for kind in get_args(Answer)}
        return {**kinds, "sentence": SentenceRow.__struct_fields__}

    def article(self, article: Article) -> dict[str, Any]:
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
        number = self._number_of_answer(evidence)
        if evidence.about is None:
            return number
        return number, _number(self.subjects, in_both(evidence.about.text))

    def _number_of_answer(self, evidence: Evidence) -> int:
        """Return the number of an answer, which is the same whatever words it is about."""
        evidence = evidence.about_everything
        if evidence not in self._numbers:
            self._numbers[evidence] = len(self.answers)
            self.answers.append(self._answer(evidence.answer(self.results)))
        return self._numbers[evidence]

    def _answer(self, answer: Answer) -> list[Any]:
        """Return the kind and the values of an answer, with numbers for what answers share."""
        kind, values = answer.__struct_config__.tag, msgspec.structs.asdict(answer)
        if values.get("grade") is not None:
            values["grade"] = _number(self.grades, values["grade"])
        if "study" in values:
            values["study"] = _number(self.studies, values["study"])
        if "findings" in values:
            values["findings"] = [_number(self.findings, each) for each in values["findings"]]
        return _trimmed([kind, *values.values()])

    def _whole_claims(self, evidence: Iterable[Evidence]) -> tuple[int, ...]:
        """Return the claims whose answers fit a sentence.

        These are the claims of which it refers to at least half of the parts. To a sentence about
        one fact of many, the answer to all of them says something else.
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


def html(articles: Iterable[Article], results: Results, pieces: Mapping[str, Any]) -> str:
    """Return the page; `pieces` is the data of the live pieces by name.

    Raises UserError if evidence that an article names does not exist.
    """
    data = PageData(results)
    shown = [data.article(article) for article in articles]
    values = {
        "columns": data.columns,
        "articles": shown,
        "answers": data.answers,
        "claims": data.claims,
        "findings": data.findings,
        "grades": data.grades,
        "studies": data.studies,
        "subjects": data.subjects,
        "norms": {name: norm for each in pieces.values() for name, norm in each["norms"].items()},
        "pieces": {name: {**each, "norms": list(each["norms"])} for name, each in pieces.items()},
        "words": yaml.safe_load(_text("page.yaml")),
        "verdicts": {
            name: both_of(CHINESE.verdicts[name], ENGLISH.verdicts[name])
            for name in CHINESE.verdicts
        },
    }
    template = environment("normlab.articles").get_template("page.html")
    return template.render(
        style=_without_comments(_text("style.css")),
        script="".join(_without_comments(_text(name)) for name in SCRIPTS),
        data=_inlined(values),
    )


def _number(known: list[T], entry: T) -> int:
    """Return the number of an entry of a list, to which it is appended if it is new."""
    if entry not in known:
        known.append(entry)
    return known.index(entry)


def _trimmed(row: list[Any]) -> list[Any]:
    """Return a row without empty values at its end."""
    while row[-1] in ("", None, []):
        row.pop()
    return row


def _text(name: str) -> str:
    return (files("normlab.articles") / "templates" / name).read_text("utf-8")


def _without_comments(code: str) -> str:
    """Return a script or style without indentation, empty lines, and lines that are comments."""
    lines = filter(None, map(str.strip, code.splitlines()))
    return "".join(f"{line}\n" for line in lines if not line.startswith(("//", "/*", "* ", "*/")))


def _inlined(data: Mapping[str, Any]) -> str:
    """Return data as JSON that is safe inside a script: no `<` begins a tag or a comment."""
    return _in_lines(data, 3).replace("<", "\\u003c")


def _in_lines(data: object, depth: int) -> str:
    """Return data as JSON: on one line if short, else one line per element down to a depth."""
    line = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if not depth or len(line) < _LINE:
        return line
    if isinstance(data, dict):
        rows = [f"{json.dumps(str(key))}:{_in_lines(data[key], depth - 1)}" for key in data]
        return "{\n" + ",\n".join(rows) + "}"
    if isinstance(data, list | tuple):
        return "[\n" + ",\n".join(_in_lines(each, depth - 1) for each in data) + "]"
    return line
