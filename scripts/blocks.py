"""Regenerate the blocks of README, docs and results, and some pages: `python scripts/blocks.py`.

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

from normlab.advice.which_norm import WHICH_NORM, which_norm_page
from normlab.articles.pages import pages
from normlab.articles.results import Results
from normlab.claims.verdict import CLAIM_VERDICTS
from normlab.formats import pipes
from normlab.metrics.score_text import score_text
from normlab.publishing.published import read
from normlab.publishing.study_arrangement import study_arrangement
from normlab.records.manifest import BLOCK, stale, write_files
from normlab.records.packed import RECORDS
from normlab.reports.legend import About, Note
from normlab.reports.table_formats.markdown import averaged, markdown_table
from normlab.reports.tables.build_table import build_table
from normlab.reports.tables.score_table import ScoreTable
from normlab.studies.load import load_study

_END = "<!-- /normlab -->"
_BLOCK = re.compile(rf"{re.escape(BLOCK)}(?P<said>.*?) -->.*?{re.escape(_END)}", re.DOTALL)
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
    """Return the pages with blocks below a folder of results, and README and docs next to it."""
    others = [page for pattern in _PAGES for page in sorted(root.parent.glob(pattern))]
    pages = [*others, *sorted(root.rglob("*.md"))]
    return [page for page in pages if BLOCK in page.read_text("utf-8")]


def regenerated(page: Path, root: Path) -> str:
    """Return a page with its blocks regenerated from the results below `root`.

    Raises ValueError, with page and block, for a block that cannot be generated.
    """
    text, chinese = page.read_text("utf-8"), "zh" in (*page.name.split("."), page.parent.name)
    if not text.count(BLOCK) == len(_BLOCK.findall(text)) == text.count(_END):
        raise ValueError(f"{page}: a block without its end: each {BLOCK}... --> takes one {_END}")

    def made(match: re.Match[str]) -> str:
        said = match["said"]
        try:
            content = _content(root, said)
        except ValueError as error:
            raise ValueError(f"{page}: block `{said}`: {error}") from None
        content = content.replace(" +- ", " \u00b1 ") if chinese else content
        return f"{BLOCK}{said} -->{content}{_END}"

    return _BLOCK.sub(made, text)


def _parsed(said: str) -> tuple[str, list[str], dict[str, str]]:
    """Return a block's kind, words and named values; ValueError if these do not fit together."""
    kind, *rest = shlex.split(said) or [""]
    if kind not in _TAKES:
        raise ValueError(f"no kind {kind!r}: there are {', '.join(_TAKES)}")
    words = [word for word in rest if "=" not in word]
    named = dict(word.split("=", 1) for word in rest if "=" in word)
    if unknown := [name for name in named if name not in _NAMED[kind]]:
        allowed = ", ".join(f"{name}=" for name in _NAMED[kind]) or "no named values"
        raise ValueError(f"no {unknown[0]}= for {kind}: it takes {allowed}")
    if kind != "claims" and len(words) != len(_TAKES[kind].split()):
        raise ValueError(f"expected {_TAKES[kind]}, found {' '.join(words) or 'nothing'}")
    return kind, words, named


def _content(root: Path, said: str) -> str:
    """Return the content of a block; ValueError if it cannot be generated."""
    kind, words, named = _parsed(said)
    form = named.get("format")
    if kind == "value":
        if words[0] == "claims.json":
            raise ValueError("a part is named, as in `part 2.worse`: its place may change")
        value = _looked_up(root / words[0], words[1])
        return score_text(value, words[1]) if form is None else format(value, form)
    if kind == "part":
        return _of_part(root, words[0], form)
    if kind == "inspected":
        return _inspected(root / words[0], named)
    if kind == "claims":
        (verdict,) = _among(" ".join(words), tuple(CLAIM_VERDICTS), "\n")
        return str(sum(claim.verdict == verdict for claim in Results(root).claims.values()))
    if kind == "cost":
        study, _, scale = words[0].partition("/")
        return _cost(study, scale, words[1])
    path = root / words[0] / RECORDS
    stamp = path.stat().st_mtime_ns if path.is_file() else 0
    table = _table(path.parent, stamp, *words[1:])
    if kind == "table":
        return _part(table, words[0], named)
    place = named.get("row"), named.get("at")
    rows = [r for r in table.rows if r.name == place[0] and place[1] in (None, r.point)]
    if len(rows) != 1:
        there = "; ".join(f"{row.name} @ {row.point}" for row in table.rows)
        raise ValueError(f"name one row, with row= and at=, of: {there}")
    entry = rows[0].entries[words[1]]
    if kind == "mean":
        mean = statistics.fmean(entry.values)
        return entry.value if form is None else format(mean, form)
    if entry.difference is None:
        raise ValueError("there is no such difference")
    return entry.gap if form is None else format(abs(entry.difference.mean), form)


def _of_part(root: Path, name: str, form: str | None) -> str:
    """Return the size of the value of a part of the ledger, by claim and name: `2.worse`."""
    part = Results(root).part(name)
    if part.value is None:
        raise ValueError(f"part {name} has no value: {part.finding}")
    return f"{abs(float(part.value)):{form or '.3g'}}"


def _cost(study: str, scale: str, what: str) -> str:
    """Return the number of runs that a study plans at a scale, or the hours that they take."""
    runs, hours = load_study(study).cost(scale)
    values = {"runs": str(runs), "hours": f"{hours:.1f}"}
    if what not in values:
        raise ValueError(f"expected {' or '.join(values)}, found {what}")
    return values[what]


@lru_cache(maxsize=64)
def _table(folder: Path, _: int, also: str | None = None) -> ScoreTable:
    """Return the table of a published study, with an additional column for a score it lacks."""
    runs, study = read(folder), load_study(folder.parent.name)
    if also is not None and also not in study.columns:
        study = replace(study, columns=(*study.columns, also))
    return build_table(study_arrangement(study, folder.name, runs))


def _part(table: ScoreTable, place: str, named: Mapping[str, str]) -> str:
    """Return some rows and columns of a table in Markdown, with a note on their runs."""
    columns = _among(named.get("columns", ",".join(table.columns)), table.columns, ",")
    names = list(dict.fromkeys(row.name for row in table.rows))
    wanted, at = _among(named.get("rows", ";".join(names)), names, ";"), named.get("at")
    rows = tuple(
        replace(row, entries={k: replace(e, difference=None) for k, e in row.entries.items()})
        for row in table.rows
        if row.name in wanted and at in (None, row.point)
    )
    notes = [n.text for n in table.notes if n.about in (About.DATA, About.TESTED, About.SEEDS)]
    note = "; ".join([*notes, f"full table: results/{place}/table.md"])
    return (
        f"\n\n{markdown_table(replace(table, columns=columns, rows=rows, notes=(Note(note),)))}\n"
    )


def _inspected(path: Path, named: Mapping[str, str]) -> str:
    """Return the rows of several inspected runs in Markdown: means and standard deviations."""
    try:
        found = json.loads(path.read_text("utf-8"))["rows"]
    except (OSError, ValueError, LookupError) as error:
        raise ValueError(f"{path} has no rows of inspected runs: {error!r}") from None
    columns = list(dict.fromkeys(column for own in found.values() for column in own))
    shown = _among(named.get("columns", ",".join(columns)), columns, ",")
    lines: list[list[str]] = []
    for row in _among(named.get("rows", ";".join(found)), list(found), ";"):
        cells = [found[row].get(column) for column in shown]
        seeds = max(cell["n"] for cell in cells if cell)
        lines.append([row, *map(averaged, cells), str(seeds)])
    return "\n\n" + "\n".join(pipes(["norm", *shown, "seeds"], lines, words=1)) + "\n"


def _among(text: str, allowed: Sequence[str], mark: str) -> tuple[str, ...]:
    found = tuple(text.split(mark))
    for name in found:
        if name not in allowed:
            raise ValueError(f"no {name!r}: there are {', '.join(allowed)}")
    return found


def _looked_up(path: Path, key: str) -> float:
    """Return the number at a dotted key of a JSON file; numbers in the key are list indices."""
    try:
        node = json.loads(path.read_text("utf-8"))
        for part in key.split("."):
            node = node[int(part)] if isinstance(node, list) else node[part]
        return node + 0  # TypeError if it is not a number
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} has no number {key}: {error!r}") from None


if __name__ == "__main__":
    results = Path(__file__).resolve().parents[1] / "results"
    made = {path: regenerated(path, results) for path in pages_with_blocks(results)}
    made |= {**pages(results), results / WHICH_NORM: which_norm_page(results)}
    for path, text in made.items():
        print(f"{path}: {'written' if stale({path: text}) else 'up to date'}")
        write_files({path: text})
