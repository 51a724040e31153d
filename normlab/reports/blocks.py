"""Generated blocks: the figures of pages that people write, made of records.

A block is `<!-- normlab: KIND ARGUMENTS -->`, what is made, `<!-- /normlab -->`. Arguments are
words, in quotes where they hold blanks, and `name=value`. The kinds:

    table STUDY/SCALE [columns=A,B] [rows=A;B] [at=POINT] [differences=yes]
    mean STUDY/SCALE SCORE row=ROW [at=POINT]           36.83 +- 0.21; with format=.1f: 36.8
    difference STUDY/SCALE SCORE row=ROW [at=POINT]     -1.68 [-1.89, -1.48], p < 0.001; with
                                                        format=.1f its size alone: 1.7
    seeds STUDY/SCALE SCORE row=ROW [at=POINT]          36.65 37.06 36.78
    value FILE KEY [format=.2f]                         a score of a record, or a key of a JSON file
"""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from normlab.records.store import RECORD_FILE, read_record
from normlab.reports.manifest import BLOCK
from normlab.reports.published import read, study_name
from normlab.reports.study_table import build
from normlab.reports.table import Entry, Row, Table, figure, markdown, parts
from normlab.studies import load_study

_END = "<!-- /normlab -->"
_BLOCK = re.compile(
    re.escape(BLOCK) + r"(?P<said>.*?) -->(?P<made>.*?)" + re.escape(_END), re.DOTALL
)
_PAGES = ("README*.md", "docs/**/*.md")


@dataclass(frozen=True)
class Words:
    """The arguments of a block: words in their order, and values by name."""

    words: tuple[str, ...]
    named: dict[str, str]


def pages_with_blocks(root: Path) -> list[Path]:
    """Return the pages below a folder of results, and README and docs beside it, with blocks."""
    beside = [page for pattern in _PAGES for page in sorted(root.parent.glob(pattern))]
    pages = [*beside, *sorted(root.rglob("*.md"))]
    return [page for page in pages if BLOCK in page.read_text("utf-8")]


def written(page: Path, root: Path) -> tuple[str, list[str]]:
    """Return a page with its blocks made anew, and what was wrong, a line a block.

    Raises ValueError naming page and block for one that cannot be made.
    """
    text = page.read_text("utf-8")
    if text.count(BLOCK) != len(_BLOCK.findall(text)) or text.count(_END) != text.count(BLOCK):
        raise ValueError(f"{page}: a block without its end: each {BLOCK}... --> takes one {_END}")
    source = _Source(root)
    stale: list[str] = []

    def made(match: re.Match[str]) -> str:
        said = match["said"]
        try:
            content = source.content(said)
        except ValueError as error:
            raise ValueError(f"{page}: block `{said}`: {error}") from None
        if content != match["made"]:
            was = " ".join(match["made"].split())
            stale.append(f"{page}: block `{said}` says {was:.80}, which its records do not")
        return f"{BLOCK}{said} -->{content}{_END}"

    return _BLOCK.sub(made, text), stale


class _Source:
    """What blocks are made of: the published studies and records below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table = cache(self._table)
        self.runs = cache(read)
        self._kinds: dict[str, Callable[[Words], str]] = {
            "table": self._shown,
            "mean": self._mean,
            "difference": self._difference,
            "seeds": self._seeds,
            "value": self._value,
        }

    def content(self, said: str) -> str:
        """Return the content of a block; ValueError for one that cannot be made."""
        kind, *rest = shlex.split(said) or [""]
        if kind not in self._kinds:
            raise ValueError(f"no kind {kind!r}: there are {', '.join(self._kinds)}")
        named = {name: value for name, mark, value in (w.partition("=") for w in rest) if mark}
        words = tuple(word for word in rest if "=" not in word)
        found = self._kinds[kind](Words(words, named))
        if not found:
            raise ValueError("there is no such figure")
        return found

    def _table(self, place: str, also: str | None = None) -> Table:
        """Return the table of a published study, with one more column for a score it lacks."""
        folder = self.root / place
        scale, runs = self.runs(folder)
        study = load_study(study_name(folder))
        if also is not None and also not in study.columns:
            study = replace(study, columns=(*study.columns, also))
        return build(study, scale, runs)

    def _shown(self, words: Words) -> str:
        """Return a whole table in Markdown, of some rows and columns, with what it was made of."""
        (place,) = _exactly(words, 1, "STUDY/SCALE")
        table = self.table(place)
        columns = _among(words.named.get("columns", ",".join(table.columns)), table.columns, ",")
        names = list(dict.fromkeys(row.name for row in table.rows))
        rows = _among(words.named.get("rows", ";".join(names)), names, ";")
        at = words.named.get("at")
        kept = [row for row in table.rows if row.name in rows and at in (None, row.point)]
        if words.named.get("differences") != "yes":
            kept = [_without_differences(row) for row in kept]
        notes = [n for n in table.notes if n.startswith(("data:", "tested:", "a pilot", "rows of"))]
        notes.append(f"all of it: results/{place}/table.md")
        small = replace(table, columns=columns, rows=tuple(kept), notes=("; ".join(notes),))
        return f"\n\n{markdown(small)}\n"

    def _entry(self, words: Words) -> tuple[Entry, str]:
        place, score = _exactly(words, 2, "STUDY/SCALE SCORE")
        table = self.table(place, score)
        name, at = words.named.get("row"), words.named.get("at")
        rows = [row for row in table.rows if row.name == name and at in (None, row.point)]
        if len(rows) != 1:
            there = "; ".join(f"{row.name} @ {row.point}" for row in table.rows)
            raise ValueError(f"name one row, with row= and at=, of: {there}")
        return rows[0].entries[score], score

    def _mean(self, words: Words) -> str:
        entry, score = self._entry(words)
        form = words.named.get("format")
        if form is None:
            return parts(entry, score)[0]
        return format(fmean(entry.values.values()), form)

    def _difference(self, words: Words) -> str:
        entry, score = self._entry(words)
        form = words.named.get("format")
        if form is None or entry.difference is None:
            return parts(entry, score)[1]
        return format(abs(entry.difference.mean), form)

    def _seeds(self, words: Words) -> str:
        entry, score = self._entry(words)
        return " ".join(figure(value, score) for _, value in sorted(entry.values.items()))

    def _value(self, words: Words) -> str:
        name, key = _exactly(words, 2, "FILE KEY")
        path = self.root / name
        if path.name == RECORD_FILE:
            score = read_record(path, mend="publish it again").figure(key)
            value = None if score is None else score.value
        else:
            value = _looked_up(path, key)
        if not isinstance(value, int | float):
            raise ValueError(f"{path} has no number {key}")
        form = words.named.get("format")
        return figure(value, key) if form is None else format(value, form)


def _looked_up(path: Path, key: str) -> Any:
    """Return what a JSON file has at a dotted key; numbers are places in a list."""
    try:
        node = json.loads(path.read_text("utf-8"))
        for part in key.split("."):
            node = node[int(part)] if isinstance(node, list) else node[part]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{path} has no {key}: {error!r}") from None
    return node


def _without_differences(row: Row) -> Row:
    entries = {name: replace(entry, difference=None, p=None) for name, entry in row.entries.items()}
    return replace(row, entries=entries)


def _exactly(words: Words, count: int, names: str) -> tuple[str, ...]:
    if len(words.words) != count:
        raise ValueError(f"expected {names}, found {' '.join(words.words) or 'nothing'}")
    return words.words


def _among(text: str, allowed: Sequence[str], mark: str) -> tuple[str, ...]:
    found = tuple(text.split(mark))
    for name in found:
        if name not in allowed:
            raise ValueError(f"no {name!r}: there are {', '.join(allowed)}")
    return found
