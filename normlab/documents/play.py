"""The page to play with: the articles sentence by sentence, and live pieces.

`page` renders `page.html` in `templates/` with the style, scripts and words there, and with the
data: what was found on each sentence, and what the live pieces start from. It needs no other file.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from typing import Any

import msgspec
import yaml

from normlab.claims.claim import Claim
from normlab.claims.endpoint import Endpoint, StudyEndpoint
from normlab.claims.ledger import verdict
from normlab.claims.other_endpoints import Computed, Published, Timing
from normlab.claims.side import SideValue
from normlab.documents.article import Article, ArticleCell, ArticleSection, ArticleTable, Passage
from normlab.documents.evidence import (
    CheckItem,
    Item,
    PartItem,
    Results,
    RowItem,
    TrainsItem,
    Translation,
    translated,
)
from normlab.documents.language import CHINESE, ENGLISH, Locale
from normlab.documents.measured_part import MeasuredPart, measured_part, score_name

SCRIPTS = (
    *("norms.js", "dom.js", "asked.js", "reading.js"),
    *("tensor.js", "words.js", "padding.js", "marks.js", "start.js"),
)
"""The scripts in `templates/`, in the order in which the page has them."""
_REFERENCE = 4
"""The number of characters of a reference to a shared text."""
_LINE = 1000
"""Data with at least this many characters get their own line, so that changes merge."""


def page(
    articles: Iterable[Article],
    results: Results,
    claims: Iterable[Claim],
    pieces: Mapping[str, Any],
) -> str:
    """Return the page; `pieces` is the data of the live pieces by name.

    Raises UserError if evidence that an article names does not exist.
    """
    answers = EvidenceIndex(results, list(claims))
    data = {
        "articles": [_article(article, answers) for article in articles],
        "answers": answers.evidence,
        "claims": answers.claims,
        "grades": answers.grades,
        "names": answers.names,
        "pieces": dict(pieces),
        "words": {
            **yaml.safe_load(_text("words.yaml")),
            "margin": [CHINESE.margin, ENGLISH.margin],
            "inside": [CHINESE.inside, ENGLISH.inside],
        },
        "verdicts": {
            name: [CHINESE.verdicts[name], ENGLISH.verdicts[name]] for name in CHINESE.verdicts
        },
    }
    values = {
        "style": _tight(_unindented(_text("style.css"))),
        "script": _tight_script(_unindented("\n".join(map(_text, SCRIPTS)))),
        "data": _inlined(each_once(data)),
    }
    text = _text("page.html")
    for name, value in values.items():
        text = text.replace(f"{{{{ {name} }}}}", value)
    return text


def _text(name: str) -> str:
    return (files("normlab.documents") / "templates" / name).read_text("utf-8")


def _unindented(code: str) -> str:
    """Return style or scripts without indentation and comments, a tenth of their size."""
    return re.sub(r"^ +|^ *(//.*|/\*(?s:.*?)\*/)\n", "", code, flags=re.MULTILINE)


def _tight(style: str) -> str:
    """Return style without the spaces around its brackets, colons, commas and semicolons."""
    return re.sub(r"\s*([{};,])\s*|(?<=:)\s+", r"\1", style)


def _tight_script(script: str) -> str:
    """Return a script without the spaces around its brackets and signs.

    What stands between the first and the last backtick of a line stays as it is, as does a line
    with a slash, which may be a regular expression.
    """
    return "\n".join(line if "/" in line else _tight_line(line) for line in script.split("\n"))


def _tight_line(line: str) -> str:
    before, tick, rest = line.partition("`")
    middle, last, after = rest.rpartition("`")
    if tick:
        return _tight_line(before) + tick + middle + last + _tight_line(after)
    parts = re.split(r'("[^"]*")', line)
    return "".join(
        part if number % 2 else re.sub(r" ?([{}()\[\],;:?=<>|&*]+) ?", r"\1", part)
        for number, part in enumerate(parts)
    )


def each_once(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with each repeated text once, in `shared`, and `=N` where its text N was."""
    counts = Counter(_texts(data))
    shared = [
        text
        for text, count in counts.most_common()
        if (count - 1) * len(text) > _REFERENCE * count or text.startswith("=")
    ]
    numbers = {text: f"={number}" for number, text in enumerate(shared)}
    return {"shared": shared, **_with_texts(data, lambda text: numbers.get(text, text))}


def _texts(node: Any) -> Iterator[str]:
    """Yield the texts of data, without the keys."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, (Mapping, list, tuple)):
        for each in node.values() if isinstance(node, Mapping) else node:
            yield from _texts(each)


def _with_texts(node: Any, change: Callable[[str], str]) -> Any:
    """Return data with its texts changed; the keys stay."""
    if isinstance(node, str):
        return change(node)
    if isinstance(node, Mapping):
        return {key: _with_texts(each, change) for key, each in node.items()}
    if isinstance(node, (list, tuple)):
        return [_with_texts(each, change) for each in node]
    return node


def _inlined(data: object) -> str:
    """Return data as JSON that can stand in a script: no `<` begins a tag or a comment."""
    return _in_lines(data, 3).replace("<", "\\u003c")


def _in_lines(data: object, depth: int) -> str:
    """Return data as JSON with a line for each element down to a depth, unless all are short."""
    line = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if not depth or len(line) < _LINE:
        return line
    if isinstance(data, dict):
        rows = [f"{json.dumps(str(key))}:{_in_lines(data[key], depth - 1)}" for key in data]
        return "{\n" + ",\n".join(rows) + "}"
    if isinstance(data, list):
        return "[\n" + ",\n".join(_in_lines(each, depth - 1) for each in data) + "]"
    return line


class EvidenceIndex:
    """What was found, each once, numbered in the order in which the articles need it.

    An answer has, unless it lacks it: the verdict `v`; in Chinese and English, what was judged `s`
    and what was found `f`, a list of findings if it was computed; of a number that runs or timings
    gave, what it is `u` as a number of `names` (Chinese and English), its value `x`, the values
    behind it `d` (of each side its name, its value, a bound, its place), the margin `l`, and why it
    is open `y`; how we know `k`, or, if it was computed, the check `check`; the number of seeds `n`
    and the level of the interval `i`, the grade `g` as a number of `grades` (Chinese and English),
    and the study `r`, STUDY/SCALE; what to run first `m`; and the claim `c`. Keys are single
    letters since words would add 12 kB to the page, whose limit is 240.
    """

    def __init__(self, results: Results, claims: Sequence[Claim]) -> None:
        self.results = results
        self.endpoints = {
            f"{claim.id}.{part.name}": part.endpoint for claim in claims for part in claim.parts
        }
        self.evidence: list[dict[str, Any]] = []
        self.claims: dict[int, list[str]] = {}
        self.grades: list[list[str]] = []
        self.names: list[list[str]] = []
        self._numbers: dict[Item, int] = {}

    @cached_property
    def claim_of(self) -> dict[str, int]:
        """The first claim that each computed check decides a part of."""
        of: dict[str, int] = {}
        for name, endpoint in self.endpoints.items():
            if isinstance(endpoint, Computed):
                of.setdefault(endpoint.check, int(name.partition(".")[0]))
        return of

    def number(self, item: Item) -> int:
        """Return the number of what was found on an item; UserError if it does not exist."""
        item = msgspec.structs.replace(item, about=None)
        if item not in self._numbers:
            self._numbers[item] = len(self.evidence)
            answer = self._answer(item)
            self.evidence.append(
                {k: value for k, value in answer.items() if value not in ("", None)}
            )
        return self._numbers[item]

    def reference(self, item: Item) -> int | list[Any]:
        """Return the number of what was found on an item, or a list of it and what it is about."""
        number = self.number(item)
        return number if item.about is None else [number, *_both(item.about.text)]

    def verdict(self, items: Iterable[Item]) -> str:
        """Return the verdict on a sentence, from the parts and checks that it refers to, or "".

        Unlike a claim, a sentence is supported only if nothing that it refers to is open.
        """
        each = [self.evidence[self.number(item)].get("v") for item in items]
        judged = [name for name in each if name]
        if not judged:
            return ""
        combined = verdict(judged)  # type: ignore[arg-type]
        all_supported = set(judged) == {"supported"}
        return "mixed" if combined == "supported" and not all_supported else combined

    def whole_claims(self, items: Iterable[Item]) -> list[int]:
        """Return the claims whose answers fit a sentence that refers to these items.

        These are the claims of which it refers to at least half of the parts. To a sentence about
        one fact of many, the answer to all of them says something else.
        """
        parts = dict.fromkeys(item.part for item in items if isinstance(item, PartItem))
        referred = Counter(int(part.partition(".")[0]) for part in parts)
        ledger = self.results.claims
        fitting = [claim for claim, n in referred.items() if 2 * n >= len(ledger[claim]["parts"])]
        for claim in fitting:
            self.claims[claim] = [ledger[claim]["chinese_answer"], ledger[claim]["answer"]]
        return fitting

    def _answer(self, item: Item) -> dict[str, Any]:
        if isinstance(item, PartItem):
            return self._part(item)
        if isinstance(item, CheckItem):
            return self._check(item)
        texts = _both(lambda language: item.text(self.results, language).replace("+-", "\u00b1"))
        if not isinstance(item, RowItem):
            return {"s": texts}
        unit = "" if isinstance(item, TrainsItem) else self._name(score_name(item.name()))
        return {"u": unit, "f": texts, "k": "shown", "r": item.of}

    def _part(self, item: PartItem) -> dict[str, Any]:
        part = self.results.part(item.part)
        endpoint = self.endpoints[item.part]
        kind = _kind(endpoint, part)
        from_runs = kind == "runs" and isinstance(endpoint, StudyEndpoint)
        study = f"{endpoint.study}/{endpoint.scale}" if from_runs else ""
        computed = isinstance(endpoint, Computed)
        published = isinstance(endpoint, Published)
        texts = [endpoint.chinese, item.value(self.results, ENGLISH)] if published else None
        measured = part["verdict"] != "not measured"
        number = measured_part(part) if measured else None
        return {
            "v": part["verdict"],
            "s": [part["chinese"], part["statement"]],
            "f": (self._findings(endpoint) if computed else texts) if measured else None,
            **(self._number(number) if number else {}),
            "m": part["to_measure"] if kind == "missing" else "",
            "k": "" if computed and measured else kind,
            "check": endpoint.check if computed else "",
            "n": part["n"] or "",
            "i": part.get("confidence", ""),
            "g": self._grade(part["grades"]) if part["grades"] else "",
            "r": study,
            "c": int(item.part.partition(".")[0]),
        }

    def _findings(self, endpoint: Computed) -> list[list[str]]:
        """Return the findings of a check that decide a part, in Chinese and English."""
        findings = zip(
            self.results.checks.get(endpoint.check, ()), self._chinese[endpoint.check], strict=True
        )
        chosen = [(finding, text) for finding, text in findings if endpoint.chooses(finding)]
        return [
            [translated(text, finding, endpoint.check) for finding, text in chosen],
            [
                f"{finding.question}? {finding.finding}" if len(chosen) > 1 else finding.finding
                for finding, _ in chosen
            ],
        ]

    @cached_property
    def _chinese(self) -> dict[str, tuple[Translation, ...]]:
        """The findings of each computed check in Chinese."""
        texts = yaml.safe_load(_text("findings.yaml"))
        return msgspec.convert(texts, dict[str, tuple[Translation, ...]])

    def _number(self, number: MeasuredPart) -> dict[str, Any]:
        """Return a number of runs or timings, and the words that it needs in both languages."""
        return {
            "u": self._name(number.name),
            "x": number.value,
            "d": [self._side(side) for side in number.sides] or None,
            "l": number.limits,
            "y": _pair(*number.reason),
        }

    def _side(self, side: SideValue) -> list[Any]:
        """Return the value of a side: its name, the value, `least`, its place; nulls left out."""
        place = None if side.place is None else self._name(side.place)
        entry = [self._name(side.name), side.value, side.least, place]
        while entry[-1] is None:
            entry.pop()
        return entry

    def _name(self, name: tuple[str, str]) -> int:
        return _place(self.names, list(name))

    def _grade(self, grade: list[str]) -> int:
        return _place(self.grades, grade)

    def _check(self, item: CheckItem) -> dict[str, Any]:
        finding, name = self.results.check(item.check), item.check.partition(" ")[0]
        return {
            "v": item.verdict(self.results),
            "s": ["", finding.question],
            "f": [[item.in_chinese(self.results)], [finding.finding]],
            "check": name,
            "c": self.claim_of.get(name),
        }


def _place(texts: list[list[str]], text: list[str]) -> int:
    """Return the place of a text in a list, to which it is appended if it is new."""
    if text not in texts:
        texts.append(text)
    return texts.index(text)


def _kind(endpoint: Endpoint, part: Mapping[str, Any]) -> str:
    """Return how a part is judged: from what kind of evidence."""
    if part["verdict"] == "not measured":
        return "missing"
    kinds = ((Computed, "computed"), (Published, "published"), (Timing, "timing"))
    return next((name for kind, name in kinds if isinstance(endpoint, kind)), "runs")


def _both(text: Callable[[Locale], str]) -> list[str]:
    """Return a text in Chinese and in English, or once if it is the same."""
    return _pair(text(CHINESE), text(ENGLISH)) or [""]


def _pair(zh: str, en: str) -> list[str] | None:
    """Return both, or one if they are the same, or None if there is neither."""
    return ([zh] if zh == en else [zh, en]) if zh or en else None


def _article(article: Article, answers: EvidenceIndex) -> dict[str, Any]:
    return {
        "id": article.id,
        "title": _both(article.title.text),
        "tables": {name: _table(table, answers) for name, table in article.tables.items()},
        "sections": [_section(section, answers) for section in article.sections],
    }


def _section(section: ArticleSection, answers: EvidenceIndex) -> dict[str, Any]:
    body = [_passage(passage, answers) for passage in section.body]
    return {"title": _both(section.title.text), "body": body}


def _passage(passage: Passage, answers: EvidenceIndex) -> dict[str, Any]:
    if passage.table or passage.piece:
        name = "table" if passage.table else "piece"
        return {name: passage.table or passage.piece}
    entry = {"t": [passage.zh, passage.en], **_judged(passage.ours, answers)}
    return {**entry, "c": passage.command} if passage.command else entry


def _table(table: ArticleTable, answers: EvidenceIndex) -> dict[str, Any]:
    return {
        "title": _both(table.title.text),
        "columns": [_both(words.text) for words in table.columns],
        "rows": [[_cell(cell, answers) for cell in row] for row in table.rows],
        "below": list(map(answers.reference, table.below)),
    }


def _cell(cell: ArticleCell, answers: EvidenceIndex) -> dict[str, Any]:
    return {"t": _both(cell.text), **_judged(cell.ours, answers)}


def _judged(items: Sequence[Item], answers: EvidenceIndex) -> dict[str, Any]:
    if not items:
        return {}
    references, verdict = list(map(answers.reference, items)), answers.verdict(items)
    wholes = answers.whole_claims(items)
    first = answers.evidence[answers.number(items[0])].get(
        "v", ""
    )  # the page takes it if there is no `v`
    return {
        **({} if verdict == first else {"v": verdict}),
        "a": references,
        **({"w": wholes} if wholes else {}),
    }
