"""What is made of committed evidence outside the tables of studies: pages, and blocks in prose.

A generated block is `<!-- normlab: KIND ARGUMENTS -->`, what is made, `<!-- /normlab -->`.
Arguments are words, in quotes where they hold blanks, and `name=value`. The kinds:

    table STUDY/SCALE [columns=A,B] [rows=A;B] [at=POINT]
    mean STUDY/SCALE SCORE row=ROW [at=POINT]           36.83 +- 0.21; with format=.1f: 36.8
    difference STUDY/SCALE SCORE row=ROW [at=POINT]     -1.68 [-1.89, -1.48], p < 0.001; with
                                                        format=.1f its size alone: 1.7
    value FILE KEY [format=.2f]                         a number at a dotted key of a JSON file
"""

import json
import math
import re
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from normlab.records.labels import norm_label
from normlab.records.packed import pack
from normlab.reports.cards import (
    BOARD,
    FOLDER,
    PAGE_FILE,
    baselines_for,
    board,
    card_page,
    cards_below,
)
from normlab.reports.manifest import BLOCK, MADE_PAGES
from normlab.reports.published import read
from normlab.reports.study_table import build
from normlab.reports.table import Table, figure, markdown, pipes, shown
from normlab.studies import load_study

Figures = Mapping[str, Any]
_PADDING = {"exclude": "", "include": ", padding included", "fill": ", padding filled"}

COLUMNS: dict[str, Callable[[Figures], str]] = {
    "in eval": lambda f: _number(_loss(f, "running", "eval")),
    "own batch": lambda f: _number(_loss(f, "batch", "training")),
    "mixed lengths": lambda f: _number(f["statistics"].get("loss_of_mixed_lengths")),
    "recalibrated": lambda f: _number(f["statistics"]["loss"].get("recalibrated")),
    "padding": lambda f: _share(max(f["padding"]["moved"]["training"]["decoder"])),
    "mates": lambda f: _share(f["batch_mates"]["values"]["training"]["decoder"]),
    "future": lambda f: _share(_leak(f, "training", "later")),
    "others": lambda f: _share(_leak(f, "training", "others")),
    "future, eval": lambda f: _share(_leak(f, "eval", "later")),
    "design effect": lambda f: _number(f["batch_mean"]["mean"]["design_effect"][5]),
    "step by step": lambda f: _number(f["stepwise"]["eval"]["difference"]["mean"]),
    "gradient": lambda f: _number(f["gradients"]["growth"]["decoder"]),
}
NOTES = (
    "loss, BLEU: of the run's record (valid/loss, test/bleu)",
    "in eval, ...: loss on 256 held-out sentences, in eval (running statistics where there are "
    "any), by the own statistics of batches of 32 of like length (as in training), by those of "
    "batches of mixed lengths, and by statistics re-estimated on training batches",
    "padding: how far real target tokens move when padding rises to 80 %; mates: when the other "
    "sentences of the batch change; both with training statistics, relative",
    "future, others: slope of the first target position by later ones and by other sentences, "
    "over that by its own token; with training statistics, and in eval",
    "design effect: tokens that are worth one independent token in the mean of 32 sentences",
    "step by step: mean difference in log-probability between incremental and whole, nats a token",
    "gradient: of the last over that of the first decoder layer",
)
TITLE = "Gradient of the last feed-forward layer at initialisation"


def pages(root: Path) -> dict[Path, str]:
    """Return what each page should be, of those whose evidence is there."""
    places = [root / name for name in MADE_PAGES if (root / name).parent.is_dir()]
    return {place: _text(root, place) for place in places} | card_pages(root)


def card_pages(root: Path) -> dict[Path, str]:
    """Return the board of the published cards and the page of each; none without any."""
    home = root / FOLDER
    cards = cards_below(home)
    if not cards:
        return {}
    found = {
        home / name / PAGE_FILE: card_page(card, baselines_for(card, [home]))
        for name, card in cards.items()
    }
    return {root / BOARD: board(cards.values()), **found}


def _text(root: Path, place: Path) -> str:
    """Return one page; ValueError naming it where its evidence is damaged or lost."""
    try:
        if place.parent.parent.name == "health":
            return health_table(place.parent)
        found = json.loads((place.parent / "gradients.json").read_text("utf-8"))
        return depth_table(found["config"], found["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{place}: cannot be made of what lies beside it: {error!r}") from None


def health_table(folder: Path) -> str:
    """Return the table of a folder's health sheets, by the records that are packed there."""
    records = {record.run_id: record for record in pack(folder).records.values() if record}
    rows: list[list[str]] = []
    for path in folder.glob("*.json"):
        sheet = json.loads(path.read_text("utf-8"))
        config, scores = sheet["subject"]["config"], records[sheet["subject"]["run"]].scores
        padding = _PADDING.get(config["norm"].get("padding", ""), "")
        figures = {key: each["figures"] for key, each in sheet["examinations"].items()}
        cells = [
            f"`{norm_label(config['choices'])}`{padding}",
            str(config["choices"]["placement"]),
            _number(scores["valid/loss"].value),
            f"{scores['test/bleu'].value:.1f}",
            *(column(figures) for column in COLUMNS.values()),
        ]
        rows.append(cells)
    rows.sort(key=lambda cells: (cells[1], cells[0]))
    head = ["norm", "placement", "loss", "BLEU", *COLUMNS]
    return "\n".join([*pipes(head, rows, words=2, notes=NOTES), ""])


def _leak(figures: Figures, mode: str, of: str) -> float:
    return figures["leak"][mode]["decoder"][of]


def _loss(figures: Figures, *names: str) -> float:
    losses = figures["statistics"]["loss"]
    return next(losses[name] for name in names if name in losses)


def _share(value: float | None) -> str:
    return "-" if value is None else "0" if value < 1e-5 else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else "0" if abs(value) < 1e-4 else f"{value:.3g}"


def depth_table(config: Sequence[str], rows: Sequence[Figures]) -> str:
    """Return mean and standard deviation by depth and placement, and the fitted power of depth.

    A row is one gradient norm (`norm`), with its `placement`, `layers` and `seed`.
    """
    norms: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        norms.setdefault((row["placement"], row["layers"]), []).append(row["norm"])
    placements = list(dict.fromkeys(placement for placement, _ in norms))
    table = [
        [
            str(depth),
            *(f"{statistics.fmean(own):.3f} +- {statistics.stdev(own):.3f}" for own in each),
        ]
        for depth in dict.fromkeys(depth for _, depth in norms)
        if (each := [norms[placement, depth] for placement in placements])
    ]
    fits: list[str] = []
    for placement in placements:  # least squares of the logarithms
        own = [row for row in rows if row["placement"] == placement]
        logs = [[math.log(row[key]) for row in own] for key in ("layers", "norm")]
        fits.append(f"{statistics.linear_regression(*logs).slope:.2f} ({placement})")
    seeds = len({row["seed"] for row in rows})
    notes = (
        f"{TITLE}: norm of the second weight, mean +- standard deviation of {seeds} seeds; as many "
        "layers in the encoder as in the decoder",
        f"norm ~ layers ** k with k = {', '.join(fits)}; Xiong et al. 2020 predict -0.5 and 0",
        f"`{' '.join(config[:3])}`: width 256, one batch of 32 sentences, no dropout",
    )
    return "\n".join([*pipes(["layers", *placements], table, words=0, notes=notes), ""])


# Generated blocks ---------------------------------------------------------------------------------

_END = "<!-- /normlab -->"
_BLOCK = re.compile(
    re.escape(BLOCK) + r"(?P<said>.*?) -->(?P<made>.*?)" + re.escape(_END), re.DOTALL
)
_PAGES = ("README*.md", "docs/**/*.md")
_TAKES = {
    "table": "STUDY/SCALE",
    **dict.fromkeys(("mean", "difference"), "STUDY/SCALE SCORE"),
    "value": "FILE KEY",
}
"""What each kind of block is followed by, before its named values."""


def pages_with_blocks(root: Path) -> list[Path]:
    """Return the pages below a folder of results, and README and docs beside it, with blocks."""
    beside = [page for pattern in _PAGES for page in sorted(root.parent.glob(pattern))]
    pages = [*beside, *sorted(root.rglob("*.md"))]
    return [page for page in pages if BLOCK in page.read_text("utf-8")]


def written(page: Path, root: Path) -> tuple[str, list[str]]:
    """Return a page with its blocks regenerated, and what was wrong, one line per block.

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
    """What blocks are made of: the published studies and files below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table = cache(self._table)
        self.runs = cache(read)

    def content(self, said: str) -> str:
        """Return the content of a block; ValueError for one that cannot be made."""
        kind, *rest = shlex.split(said) or [""]
        if kind not in _TAKES:
            raise ValueError(f"no kind {kind!r}: there are {', '.join(_TAKES)}")
        words = [word for word in rest if "=" not in word]
        named = dict(word.split("=", 1) for word in rest if "=" in word)
        if len(words) != len(_TAKES[kind].split()):
            raise ValueError(f"expected {_TAKES[kind]}, found {' '.join(words) or 'nothing'}")
        form = named.get("format")
        if kind == "table":
            return self._shown(words[0], named)
        if kind == "value":
            value = _looked_up(self.root / words[0], words[1])
            return figure(value, words[1]) if form is None else format(value, form)
        table = self.table(*words)
        places = (named.get("row"), named.get("at"))
        rows = [r for r in table.rows if r.name == places[0] and places[1] in (None, r.point)]
        if len(rows) != 1:
            there = "; ".join(f"{row.name} @ {row.point}" for row in table.rows)
            raise ValueError(f"name one row, with row= and at=, of: {there}")
        entry = rows[0].entries[words[1]]
        text = shown(entry, words[1])
        if kind == "mean":
            return (
                text.value
                if form is None
                else format(statistics.fmean(entry.values.values()), form)
            )
        if entry.difference is None:
            raise ValueError("there is no such difference")
        return text.difference if form is None else format(abs(entry.difference.mean), form)

    def _table(self, place: str, also: str | None = None) -> Table:
        """Return the table of a published study, with one more column for a score it lacks."""
        folder = self.root / place
        scale, runs = self.runs(folder)
        study = load_study(folder.parent.name)
        if also is not None and also not in study.columns:
            study = replace(study, columns=(*study.columns, also))
        return build(study, scale, runs)

    def _shown(self, place: str, named: Mapping[str, str]) -> str:
        """Return a table in Markdown, of some rows and columns, with what it was made of."""
        table = self.table(place)
        columns = _among(named.get("columns", ",".join(table.columns)), table.columns, ",")
        names = list(dict.fromkeys(row.name for row in table.rows))
        rows = _among(named.get("rows", ";".join(names)), names, ";")
        at = named.get("at")
        kept = tuple(
            replace(row, entries={k: replace(e, difference=None) for k, e in row.entries.items()})
            for row in table.rows
            if row.name in rows and at in (None, row.point)
        )
        notes = [n for n in table.notes if n.startswith(("data:", "tested:", "a pilot", "rows of"))]
        notes.append(f"all of it: results/{place}/table.md")
        small = replace(table, columns=columns, rows=kept, notes=("; ".join(notes),))
        return f"\n\n{markdown(small)}\n"


def _looked_up(path: Path, key: str) -> float:
    """Return the number that a JSON file has at a dotted key; numbers are places in a list."""
    try:
        node = json.loads(path.read_text("utf-8"))
        for part in key.split("."):
            node = node[int(part)] if isinstance(node, list) else node[part]
        return node + 0  # a TypeError for what is no number
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} has no number {key}: {error!r}") from None


def _among(text: str, allowed: Sequence[str], mark: str) -> tuple[str, ...]:
    found = tuple(text.split(mark))
    for name in found:
        if name not in allowed:
            raise ValueError(f"no {name!r}: there are {', '.join(allowed)}")
    return found
