"""The generated blocks of README, docs and results, which `python scripts/blocks.py` writes.

A block shows values or a table from published evidence: `<!-- normlab: KIND ARGUMENTS -->`, the
generated text, `<!-- /normlab -->`. Arguments are words, in quotes if they contain spaces, and
`name=value`. The kinds:

    table STUDY/SCALE [columns=A,B] [rows=A;B] [at=POINT]
    mean STUDY/SCALE SCORE row=ROW [at=POINT]           36.83 +- 0.21; with format=.1f: 36.8. The
                                                        sign is that for plus-minus in Chinese pages
    difference STUDY/SCALE SCORE row=ROW [at=POINT]     -1.68 [-1.89, -1.48], p < 0.001; with
                                                        format=.1f only its size: 1.7
    value FILE KEY [format=.2f]                         a number at a dotted key of a JSON file
    part CLAIM.NAME [format=.2f]                        the size of what was found on a part
    inspected FILE [columns=A,B] [rows=A;B]             table of `normlab inspect RUN RUN`
    claims VERDICT                                      how many claims have this verdict
    cost STUDY/SCALE runs                               how many runs a study plans; with hours:
                                                        how long they take, as in `list studies`
"""

import json
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from normlab.articles.results import Results
from normlab.claims.ledger_file import LEDGER
from normlab.claims.verdict import CLAIM_VERDICTS
from normlab.config.folders import RESULTS
from normlab.errors import UserError
from normlab.formats import pipes
from normlab.metrics.score_text import score_text
from normlab.publishing.published import read
from normlab.publishing.study_arrangement import study_arrangement
from normlab.records.manifest import BLOCK
from normlab.records.packed import RECORDS
from normlab.reports.legend import About, Note
from normlab.reports.table_formats.markdown import averaged, markdown_table
from normlab.reports.tables.build_table import build_table
from normlab.reports.tables.score_table import ScoreTable
from normlab.studies.load import load_study

_END = "<!-- /normlab -->"
_BLOCK = re.compile(
    rf"{re.escape(BLOCK)}(?P<source>.*?) -->(?P<content>.*?){re.escape(_END)}", re.DOTALL
)
_PAGES = ("README*.md", "docs/**/*.md")
_SCORE = "STUDY/SCALE SCORE"
_TAKES = {
    **{"table": "STUDY/SCALE", "mean": _SCORE, "difference": _SCORE},
    **{"value": "FILE KEY", "inspected": "FILE", "claims": "VERDICT"},
    **{"cost": "STUDY/SCALE WHAT", "part": "CLAIM.NAME"},
}
"""What each kind of block is followed by, before its named values."""
_NAMED = {
    **{"table": ("columns", "rows", "at"), "inspected": ("columns", "rows")},
    **{"mean": ("row", "at", "format"), "difference": ("row", "at", "format")},
    **{"value": ("format",), "part": ("format",), "claims": (), "cost": ()},
}
"""The named values that each kind of block may have."""


def pages_with_blocks(root: Path) -> list[Path]:
    """Return the pages with blocks below a folder of results.

    For normlab's own results, these include README and docs next to the folder.
    """
    patterns = _PAGES if root.resolve() == RESULTS else ()
    others = [page for pattern in patterns for page in sorted(root.parent.glob(pattern))]
    pages = [*others, *sorted(root.rglob("*.md"))]
    return [page for page in pages if BLOCK.encode() in page.read_bytes()]


def regenerated(page: Path, root: Path) -> str:
    """Return a page with its blocks regenerated from the results below `root`.

    Raises UserError, with page and block, for a block that cannot be generated.
    """

    def block(match: re.Match[str]) -> str:
        content = _content_on(page, root, match["source"])
        return f"{BLOCK}{match['source']} -->{content}{_END}"

    return _BLOCK.sub(block, _text_of(page))


def outdated_blocks(page: Path, root: Path) -> list[str]:
    """Return a line for each block of a page that does not match the results below `root`.

    Raises UserError as `regenerated` does.
    """
    return [
        f"{page}: the block `{match['source']}` does not match the results; find out what changed, "
        "then run python scripts/blocks.py"
        for match in _BLOCK.finditer(_text_of(page))
        if match["content"] != _content_on(page, root, match["source"])
    ]


def _text_of(page: Path) -> str:
    """Return the text of a page. Raise UserError if a block has no end."""
    text = page.read_text("utf-8")
    if not text.count(BLOCK) == len(_BLOCK.findall(text)) == text.count(_END):
        raise UserError(f"{page}: a block without its end: each {BLOCK}... --> takes one {_END}")
    return text


def _content_on(page: Path, root: Path, source: str) -> str:
    try:
        content = _content(root, source)
    except ValueError as error:  # also from a wrong format or a quote that is not closed
        raise UserError(f"{page}: block `{source}`: {error}") from None
    chinese = "zh" in (*page.name.split("."), page.parent.name)
    return content.replace(" +- ", " \u00b1 ") if chinese else content


def _parsed(source: str) -> tuple[str, list[str], dict[str, str]]:
    """Return a block's kind, words and named values; UserError if these do not fit together."""
    kind, *rest = shlex.split(source) or [""]
    if kind not in _TAKES:
        raise UserError(f"no kind {kind!r}: there are {', '.join(_TAKES)}")
    words = [word for word in rest if "=" not in word]
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    if unknown := [name for name in options if name not in _NAMED[kind]]:
        allowed = ", ".join(f"{name}=" for name in _NAMED[kind]) or "no named values"
        raise UserError(f"no {unknown[0]}= for {kind}: it takes {allowed}")
    if kind != "claims" and len(words) != len(_TAKES[kind].split()):
        raise UserError(f"expected {_TAKES[kind]}, found {' '.join(words) or 'nothing'}")
    return kind, words, options


def _content(root: Path, source: str) -> str:
    """Return the content of a block; UserError if it cannot be generated."""
    kind, words, options = _parsed(source)
    form = options.get("format")
    match kind:
        case "value":
            return _value(root, *words, form=form)
        case "part":
            return _of_part(root, words[0], form)
        case "inspected":
            return _inspected(root / words[0], options)
        case "claims":
            (verdict,) = _among(" ".join(words), tuple(CLAIM_VERDICTS), "\n")
            return str(sum(claim.verdict == verdict for claim in Results(root).claims.values()))
        case "cost":
            study, _, scale = words[0].partition("/")
            return _cost(study, scale, words[1])
        case _:
            return _of_table(root, kind, words, options)


def _of_table(root: Path, kind: str, words: Sequence[str], options: Mapping[str, str]) -> str:
    """Return a part of a published study's table, or the mean or the difference of one row."""
    path = root / words[0] / RECORDS
    stamp = path.stat().st_mtime_ns if path.is_file() else 0
    table = _table(path.parent, stamp, *words[1:])
    if kind == "table":
        return _part(table, words[0], options)
    name, point, form = map(options.get, ("row", "at", "format"))
    rows = [r for r in table.rows if r.name == name and point in (None, r.point)]
    if len(rows) != 1:
        choices = "; ".join(f"{row.name} @ {row.point}" for row in table.rows)
        raise UserError(f"name one row, with row= and at=, of: {choices}")
    entry = rows[0].entries[words[1]]
    if kind == "mean":
        return entry.value if form is None else format(statistics.fmean(entry.values), form)
    if entry.difference is None:
        raise UserError("there is no such difference")
    return entry.gap if form is None else format(abs(entry.difference.mean), form)


def _value(root: Path, file: str, key: str, *, form: str | None) -> str:
    """Return the number at a dotted key of a JSON file."""
    if file == LEDGER:
        raise UserError("a part is named, as in `part 2.worse`: its place may change")
    value = _looked_up(root / file, key)
    return score_text(value, key) if form is None else format(value, form)


def _of_part(root: Path, name: str, form: str | None) -> str:
    """Return the size of the value of a part of the ledger, by claim and name: `2.worse`."""
    part = Results(root).part(name)
    if part.value is None:
        raise UserError(f"part {name} has no value: {part.finding}")
    return f"{abs(float(part.value)):{form or '.3g'}}"


def _cost(study: str, scale: str, what: str) -> str:
    """Return the number of runs that a study plans at a scale, or the hours that they take."""
    runs, hours = load_study(study).cost(scale)
    values = {"runs": str(runs), "hours": f"{hours:.1f}"}
    if what not in values:
        raise UserError(f"expected {' or '.join(values)}, found {what}")
    return values[what]


@lru_cache(maxsize=64)
def _table(folder: Path, _: int, also: str | None = None) -> ScoreTable:
    """Return the table of a published study, with an additional column for a score it lacks."""
    runs, study = read(folder), load_study(folder.parent.name)
    if also is not None and also not in study.columns:
        study = replace(study, columns=(*study.columns, also))
    return build_table(study_arrangement(study, folder.name, runs))


def _part(table: ScoreTable, place: str, options: Mapping[str, str]) -> str:
    """Return some rows and columns of a table in Markdown, with a note on their runs."""
    columns = _among(options.get("columns", ",".join(table.columns)), table.columns, ",")
    names = list(dict.fromkeys(row.name for row in table.rows))
    chosen, at = _among(options.get("rows", ";".join(names)), names, ";"), options.get("at")
    rows = tuple(
        replace(row, entries={k: replace(e, difference=None) for k, e in row.entries.items()})
        for row in table.rows
        if row.name in chosen and at in (None, row.point)
    )
    notes = [n.text for n in table.notes if n.about in (About.DATA, About.TESTED, About.SEEDS)]
    note = "; ".join([*notes, f"full table: results/{place}/table.md"])
    return (
        f"\n\n{markdown_table(replace(table, columns=columns, rows=rows, notes=(Note(note),)))}\n"
    )


def _inspected(path: Path, options: Mapping[str, str]) -> str:
    """Return the rows of several inspected runs in Markdown: means and standard deviations."""
    try:
        by_row = json.loads(path.read_text("utf-8"))["rows"]
    except (OSError, ValueError, LookupError) as error:
        raise UserError(f"{path} has no rows of inspected runs: {error!r}") from None
    columns = list(dict.fromkeys(column for cells in by_row.values() for column in cells))
    shown = _among(options.get("columns", ",".join(columns)), columns, ",")
    lines: list[list[str]] = []
    for row in _among(options.get("rows", ";".join(by_row)), list(by_row), ";"):
        cells = [by_row[row].get(column) for column in shown]
        seeds = max(cell["n"] for cell in cells if cell)
        lines.append([row, *map(averaged, cells), str(seeds)])
    return "\n\n" + "\n".join(pipes(["norm", *shown, "seeds"], lines, words=1)) + "\n"


def _among(text: str, allowed: Sequence[str], mark: str) -> tuple[str, ...]:
    names = tuple(text.split(mark))
    for name in names:
        if name not in allowed:
            raise UserError(f"no {name!r}: there are {', '.join(allowed)}")
    return names


def _looked_up(path: Path, key: str) -> int | float:
    """Return the number at a dotted key of a JSON file; numbers in the key are list indices."""
    try:
        node = json.loads(path.read_text("utf-8"))
        for part in key.split("."):
            node = node[int(part)] if isinstance(node, list) else node[part]
        return node + 0  # TypeError if it is not a number
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{path} has no number {key}: {error!r}") from None
