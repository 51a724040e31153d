"""The interactive page: the articles sentence by sentence, and live pieces.

`page` fills `page.html` in `templates/` with the style, scripts and words there, and with the data:
what was found on each sentence, and what the live pieces start from. It needs no other file.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, get_args

import msgspec
import yaml
from msgspec import Struct

from normlab.articles.answers import Answer, Answers, Pair, Reference, both_of, in_both
from normlab.articles.article import Article, ArticleTable, Passage
from normlab.articles.evidence import Item
from normlab.articles.language import CHINESE, ENGLISH
from normlab.articles.results import Results
from normlab.claims.claim import Claim
from normlab.templates import environment

SCRIPTS = (
    *("norms.js", "dom.js", "asked.js", "reading.js"),
    *("tensor.js", "words.js", "padding.js", "marks.js", "start.js"),
)
"""The scripts in `templates/`, in the order in which the page has them."""
_LINE = 4000
"""Data with at least this many characters get their own line, so that changes merge."""


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


def page(
    articles: Iterable[Article],
    results: Results,
    claims: Iterable[Claim],
    pieces: Mapping[str, Any],
) -> str:
    """Return the page; `pieces` is the data of the live pieces by name.

    Raises UserError if evidence that an article names does not exist.
    """
    answers = Answers(results, list(claims))
    norms = {name: norm for piece in pieces.values() for name, norm in piece["norms"].items()}
    shown = [_article(article, answers) for article in articles]
    columns = {kind.__struct_config__.tag: kind.__struct_fields__ for kind in get_args(Answer)}
    data = {
        "columns": {**columns, "sentence": SentenceRow.__struct_fields__},
        "articles": shown,
        "answers": list(map(_row, answers.answers)),
        "claims": answers.claims,
        "findings": answers.findings,
        "grades": answers.grades,
        "studies": answers.studies,
        "subjects": answers.subjects,
        "norms": norms,
        "pieces": {
            name: {**piece, "norms": list(piece["norms"])} for name, piece in pieces.items()
        },
        "words": yaml.safe_load(_text("words.yaml")),
        "verdicts": {
            name: both_of(CHINESE.verdicts[name], ENGLISH.verdicts[name])
            for name in CHINESE.verdicts
        },
    }
    template = environment("normlab.articles").get_template("page.html")
    return template.render(
        style=_without_comments(_text("style.css")),
        script="".join(_without_comments(_text(name)) for name in SCRIPTS),
        data=_inlined(data),
    )


def _text(name: str) -> str:
    return (files("normlab.articles") / "templates" / name).read_text("utf-8")


def _without_comments(code: str) -> str:
    """Return a script or style without indentation, empty lines, and lines that are comments."""
    lines = filter(None, map(str.strip, code.splitlines()))
    return "".join(f"{line}\n" for line in lines if not line.startswith(("//", "/*", "* ", "*/")))


def _row(values: Struct) -> list[Any]:
    """Return values in the order of their columns, without empty ones at the end."""
    row = msgspec.to_builtins(values)
    while row[-1] in ("", None, []):
        row.pop()
    return row


def _inlined(data: Mapping[str, Any]) -> str:
    """Return data as JSON that is safe inside a script tag: no `<` begins a tag or a comment."""
    return _in_lines(data, 3).replace("<", "\\u003c")


def _in_lines(data: object, depth: int) -> str:
    """Return data as JSON with a line for each element down to a depth, unless all are short."""
    line = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if not depth or len(line) < _LINE:
        return line
    if isinstance(data, dict):
        rows = [f"{json.dumps(str(key))}:{_in_lines(data[key], depth - 1)}" for key in data]
        return "{\n" + ",\n".join(rows) + "}"
    if isinstance(data, list | tuple):
        return "[\n" + ",\n".join(_in_lines(each, depth - 1) for each in data) + "]"
    return line


def _article(article: Article, answers: Answers) -> dict[str, Any]:
    return {
        "id": article.id,
        "title": in_both(article.title.text),
        "tables": {name: _table(table, answers) for name, table in article.tables.items()},
        "sections": [
            {
                "title": in_both(section.title.text),
                "body": [_passage(passage, answers) for passage in section.body],
            }
            for section in article.sections
        ],
    }


def _passage(passage: Passage, answers: Answers) -> dict[str, str] | list[Any]:
    if passage.table or passage.piece:
        return {"table": passage.table} if passage.table else {"piece": passage.piece}
    return _sentence(both_of(passage.zh, passage.en), passage.ours, answers, passage.command)


def _table(table: ArticleTable, answers: Answers) -> dict[str, Any]:
    return {
        "title": in_both(table.title.text),
        "columns": [in_both(words.text) for words in table.columns],
        "rows": [
            [_sentence(in_both(cell.text), cell.ours, answers) for cell in row]
            for row in table.rows
        ],
        "below": [answers.reference(item) for item in table.below],
    }


def _sentence(text: Pair, items: Sequence[Item], answers: Answers, command: str = "") -> list[Any]:
    references, verdict = tuple(map(answers.reference, items)), answers.verdict(items)
    repeated = verdict == answers.verdict(items[:1])
    claims = answers.whole_claims(items)
    return _row(SentenceRow(text, references, claims, "" if repeated else verdict, command))
