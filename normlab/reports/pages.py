"""Pages of results/ that are made of committed evidence and belong to no study."""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.records.labels import norm_label
from normlab.records.store import RunStore
from normlab.reports.cards import (
    BOARD,
    FOLDER,
    PAGE_FILE,
    baselines_for,
    board,
    card_page,
    cards_below,
)
from normlab.reports.manifest import MADE_PAGES

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
Gradients = Sequence[Mapping[str, Any]]
"""Values with what each is of: `placement`, `layers`, `seed`, `norm`."""


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
            return health_table(place.parent, root)
        found = json.loads((place.parent / "gradients.json").read_text("utf-8"))
        return depth_table(found["config"], found["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{place}: cannot be made of what lies beside it: {error!r}") from None


# The health sheets ------------------------------------------------------------------------------


def health_table(folder: Path, runs: Path) -> str:
    """Return the table of a folder's health sheets; the records of their runs are below `runs`."""
    records = {record.run_id: record for _, record in RunStore(runs).entries()}
    sheets = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    titles = ["norm", "placement", "loss", "BLEU", *COLUMNS]
    lines = [
        "| " + " | ".join(titles) + " |",
        "| --- | --- |" + " ---: |" * (len(titles) - 2),
    ]
    for sheet in sorted(sheets, key=lambda sheet: _name(sheet).split(" | ")[::-1]):
        scores = records[sheet["subject"]["run"]].scores
        figures = {key: each["figures"] for key, each in sheet["examinations"].items()}
        cells = [
            _name(sheet),
            _number(scores["valid/loss"].value),
            f"{scores['test/bleu'].value:.1f}",
            *(column(figures) for column in COLUMNS.values()),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in NOTES), ""])


def _leak(figures: Figures, mode: str, of: str) -> float:
    return figures["leak"][mode]["decoder"][of]


def _loss(figures: Figures, *names: str) -> float:
    losses = figures["statistics"]["loss"]
    return next(losses[name] for name in names if name in losses)


def _share(value: float | None) -> str:
    if value is None:
        return "-"
    return "0" if value < 1e-5 else f"{value:.1%}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return "0" if abs(value) < 1e-4 else f"{value:.3g}"


def _name(sheet: Mapping[str, Any]) -> str:
    """Name the norm and its treatment of padding, and the placement."""
    config = sheet["subject"]["config"]
    choices = config["choices"]
    padding = _PADDING.get(config["norm"].get("padding", ""), "")
    return f"`{norm_label(choices)}`{padding} | {choices['placement']}"


# The gradient by depth --------------------------------------------------------------------------


def depth_table(config: Sequence[str], rows: Gradients) -> str:
    """Return mean and standard deviation by depth and placement, and the fitted power of depth."""
    placements = list(dict.fromkeys(row["placement"] for row in rows))
    layers = list(dict.fromkeys(row["layers"] for row in rows))
    lines = ["| layers | " + " | ".join(placements) + " |", "| ---: | ---: | ---: |"]
    for depth in layers:
        cells: list[str] = []
        for placement in placements:
            own = [r["norm"] for r in rows if (r["layers"], r["placement"]) == (depth, placement)]
            cells.append(f"{statistics.fmean(own):.3f} +- {statistics.stdev(own):.3f}")
        lines.append(f"| {depth} | {' | '.join(cells)} |")
    fits = ", ".join(f"{exponent(rows, placement):.2f} ({placement})" for placement in placements)
    return "\n".join(
        [
            *lines,
            "",
            f"- {TITLE}: norm of the second weight, mean +- standard deviation of "
            f"{len({row['seed'] for row in rows})} seeds; as many layers in the encoder as in the "
            "decoder",
            f"- norm ~ layers ** k with k = {fits}; Xiong et al. 2020 predict -0.5 and 0",
            f"- `{' '.join(config[:3])}`: width 256, one batch of 32 sentences, no dropout",
            "",
        ]
    )


def exponent(rows: Gradients, placement: str) -> float:
    """Return k of the fit norm ~ layers ** k, by least squares of the logarithms."""
    own = [row for row in rows if row["placement"] == placement]
    logs = [[math.log(row[key]) for row in own] for key in ("layers", "norm")]
    return statistics.linear_regression(*logs).slope
