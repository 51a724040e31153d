"""Builds the interactive page: the articles sentence by sentence, and live pieces.

`interactive_page` fills `templates/page.html` with the stylesheet, scripts and words of that
folder, and with data in JSON: what was found on each sentence (`page_data.py`), the words
(`page.yaml`), the names of verdicts, and the initial values of the live `pieces`, keyed by name. A
piece lists the names of its norms, and `norms` has their data. The page needs no other file.
"""

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import yaml
from msgspec import to_builtins
from rcssmin import cssmin
from rjsmin import jsmin

from normlab.articles.article import Article
from normlab.articles.explanation import both_of
from normlab.articles.page_data import page_data
from normlab.articles.results import Results
from normlab.claims.in_words.language import CHINESE, ENGLISH
from normlab.templates import environment

SCRIPTS = (
    *("norms.js", "dom.js", "asked.js", "reading.js"),
    *("tensor.js", "words.js", "padding.js", "marks.js", "start.js"),
)
"""The scripts in `templates/`, in the order in which the page includes them."""
_LINE = 4000
"""Data of at least this many characters are split into lines, so that git can merge changes."""


def interactive_page(
    articles: Iterable[Article], results: Results, pieces: Mapping[str, Any]
) -> str:
    """Return the page. `pieces` has the data of the live pieces, keyed by name.

    Raises UserError if evidence that an article refers to does not exist.
    """
    words = yaml.safe_load(_text("page.yaml"))
    values = {
        **to_builtins(page_data(articles, results)),
        "norms": {name: norm for each in pieces.values() for name, norm in each["norms"].items()},
        "pieces": {name: {**each, "norms": list(each["norms"])} for name, each in pieces.items()},
        "words": words,
        "verdicts": {
            name: both_of(CHINESE.verdicts[name], ENGLISH.verdicts[name])
            for name in CHINESE.verdicts
        },
    }
    template = environment("normlab.articles").get_template("page.html")
    return template.render(
        words=words,
        style=cssmin(_text("style.css")),
        script=jsmin("".join(map(_text, SCRIPTS))),
        data=_inlined(values),
    )


def _text(name: str) -> str:
    return (files("normlab.articles") / "templates" / name).read_text("utf-8")


def _inlined(data: Mapping[str, Any]) -> str:
    """Return data as JSON that is safe inside a script element, because `<` is escaped."""
    return _in_lines(data, 3).replace("<", "\\u003c")


def _in_lines(data: object, depth: int) -> str:
    """Return data as JSON: on one line if it is short, otherwise with one line per element.

    Elements are split in the same way, down to a depth.
    """
    line = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if not depth or len(line) < _LINE:
        return line
    if isinstance(data, dict):
        rows = [f"{json.dumps(str(key))}:{_in_lines(data[key], depth - 1)}" for key in data]
        return "{\n" + ",\n".join(rows) + "}"
    if isinstance(data, list | tuple):
        return "[\n" + ",\n".join(_in_lines(each, depth - 1) for each in data) + "]"
    return line
