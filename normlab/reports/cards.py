"""Report cards of norms: the board of all, and the page of one with the baselines."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from normlab.metrics.spread import clear_of, paired_interval
from normlab.records.labels import in_markdown
from normlab.records.record import number
from normlab.reports.page import page, signed
from normlab.reports.panels import Panel, Series, data, looks_of, spread
from normlab.reports.table import pipes

FORMAT = "normlab.card/1"
CARD_FILE, PAGE_FILE = "card.json", "card.html"
BASELINES = ("ln", "rms", "bn", "none")
BOARD = "cards.md"
FOLDER = "cards"
Card = Mapping[str, Any]
_ROUNDING = 1e-3  # nats a token
_RANKED = {"translation": "test/nll", "language_model": "test/loss", "bert": "test/mlm_loss"}
_NOTES = (
    "sorted by the mean rank of the three losses on text; a dash: does not apply, or not examined",
    "a star, and last: sees later tokens where it is tested, so its losses on text are those of "
    "an easier task; stepwise is what that is worth",
    "alone x ln, step x ln: time beside `ln`, by itself (forward and backward) and of a whole step",
    "toy nll, toy BLEU, lm loss, bert loss: the short runs on the built-in corpora, mean of seeds",
    "a score that is not clear of the untrained baseline (a loss by 1 nat) says nothing about a "
    "norm: the page of its card marks it",
    "digits loss, digits acc: loss and accuracy of a small residual network on handwritten digits, "
    "a short run, mean of seeds",
    "largest lr: doubled until it no longer trains, by the loss in training (in the cards that are "
    "published: on held-out text); + where the largest that was tried does",
    "grad growth: gradient of the last over the first layer of a deep decoder; first update: how "
    "far one update moves the last layer's output",
    "no warm-up, batch of 4: what is added to toy nll without warm-up, and with statistics of four "
    "sequences",
    "mates, padding: how far a sentence's values move in training with others beside it, and with "
    "80 % padding",
    "train-eval gap: loss with running statistics less that with the batch's own; stepwise: nats a "
    "token between token by token and whole",
    "a first look: few seeds, small models, one rate for all; a claim takes `normlab study run`",
)


def read_card(path: Path) -> dict[str, Any]:
    """Read a `card.json`; ValueError naming a file that is none."""
    try:
        found = json.loads(path.read_text("utf-8"))
        if found["format"] != FORMAT:
            raise ValueError(found["format"])
        for key in ("name", "scale", "overrides", "description", "environment"):
            found[key]
        if not all("cells" in each for each in found["examinations"].values()):
            raise KeyError("cells")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: damaged, or no card ({error!r:.80}); make it again with normlab norm card"
        ) from None
    return found


def cards_below(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the cards in the folders of a folder, by the names of these."""
    return {path.parent.name: read_card(path) for path in sorted(folder.glob(f"*/{CARD_FILE}"))}


def cells(card: Card) -> dict[str, Any]:
    """Return all that a card gives to the board, by title."""
    found: dict[str, Any] = {}
    for each in card["examinations"].values():
        found |= each["cells"]
    return found


def board(cards: Iterable[Card]) -> str:
    """Return the board of cards in Markdown, a row a norm."""
    rows = _sorted(list(cards))
    own = {card["name"]: cells(card) for card in rows}
    titles = list(dict.fromkeys(title for found in own.values() for title in found))
    lines = [
        [
            f"`{card['name']}`" + (" \\*" if _sees_later(card) else ""),
            *(_shown(own[card["name"]].get(title)) for title in titles),
        ]
        for card in rows
    ]
    said = "Each row is a report card (`normlab norm card NAME`), made at `scale=cpu`."
    table = pipes(["norm", *titles], lines, words=1, notes=_NOTES)
    return "\n".join(["# The board of norms", "", said, "", *table, ""])


def _sorted(cards: list[Card]) -> list[Card]:
    ranks = {card["name"]: list[float]() for card in cards}
    for task, score in _RANKED.items():
        losses = {card["name"]: _loss(card, task, score) for card in cards}
        for name, loss in losses.items():
            ranks[name].append(sum(other < loss for other in losses.values()))
    return sorted(
        cards, key=lambda card: (_sees_later(card), fmean(ranks[card["name"]]), card["name"])
    )


def _sees_later(card: Card) -> bool:
    """Tell whether a token by itself has another loss than within its whole text."""
    return (number(cells(card).get("stepwise")) or 0.0) > _ROUNDING


def _loss(card: Card, task: str, score: str) -> float:
    """Return the mean of a run's loss; infinity where a seed diverged or none ran."""
    figures = card["examinations"].get(task, {}).get("figures", {})
    if not figures or figures["diverged"]:
        return math.inf
    return fmean(values(figures["scores"][score]).values())


def values(scores: Mapping[str, Any]) -> dict[int, float]:
    """Return scores by seed as numbers."""
    return {int(seed): float(number(value) or 0.0) for seed, value in scores.items()}


def _shown(value: object) -> str:
    """Write a cell for the board."""
    found = number(value)
    if value is None:
        return "-"
    if found is None:
        return in_markdown(str(value))
    return "0" if abs(found) < 1e-4 else f"{found:.3g}"


@dataclass(frozen=True)
class Beside:
    """A score of a card beside that of a baseline, paired by seed."""

    baseline: str
    value: float
    difference: float
    interval: str


def beside(card: Card, baselines: Mapping[str, Card], task: str, score: str) -> list[Beside]:
    """Compare a score of a short run with the baselines' of the same seeds and length."""
    own = card["examinations"][task]["figures"]
    mine = values(own["scores"][score])
    found: list[Beside] = []
    for name, other in baselines.items():
        figures = other["examinations"].get(task, {}).get("figures", {})
        theirs = values(figures.get("scores", {}).get(score, {}))
        shared = sorted(mine.keys() & theirs.keys())
        if not shared or figures["steps"] != own["steps"]:
            continue
        gaps = [mine[seed] - theirs[seed] for seed in shared]
        bounds = ""
        if len(shared) > 1:
            interval = paired_interval(mine, theirs)
            bounds = f"[{interval.low:+.3g}, {interval.high:+.3g}]"
        average = fmean(theirs[seed] for seed in shared)
        found.append(Beside(name, average, fmean(gaps), bounds))
    return found


def baselines_for(card: Card, folders: Sequence[Path]) -> dict[str, Card]:
    """Return the cards of the baselines at a card's scale and placement.

    Of each examination the first one found counts. The card itself is none of its baselines.
    """
    placement = [text for text in card["overrides"] if text.startswith("placement")]
    suffix = "".join(f"-{text.partition('=')[2]}" for text in placement if text != "placement=pre")
    found: dict[str, Card] = {}
    for name in (f"{baseline}{suffix}" for baseline in BASELINES):
        paths = [folder / name / CARD_FILE for folder in folders if name != card["name"]]
        cards = [read_card(path) for path in paths if path.is_file()]
        cards = [other for other in cards if other["scale"] == card["scale"]]
        if cards:
            examinations = [other["examinations"] for other in reversed(cards)]
            merged = {key: each for some in examinations for key, each in some.items()}
            found[name] = {**cards[0], "examinations": merged}
    return found


# The page of a card ------------------------------------------------------------------------------


def card_page(card: Card, baselines: Mapping[str, Card]) -> str:
    """Return the page of a card, the same bytes for the same card and baselines."""
    looks = looks_of({name: name for name in (card["name"], *baselines)})
    sections = [_section(name, card, baselines) for name in card["examinations"]]
    panels = [panel for section in sections for panel in section["panels"]]
    return page(
        "card.html",
        charts=data(panels, looks) if panels else None,
        card=card,
        facts=[
            ("scale", [card["scale"]]),
            ("seeds", card["seeds"]),
            *((title, [_written(value)]) for title, value in cells(card).items()),
        ],
        baselines=baselines,
        sections=sections,
        environment={
            key: str(value)
            for key, value in sorted(card["environment"].items())
            if isinstance(value, str | int | float | bool)
        },
    )


def _section(name: str, card: Card, baselines: Mapping[str, Card]) -> dict[str, Any]:
    """Return an examination as its template takes it."""
    found = card["examinations"][name]
    is_run = "curves" in found["figures"]
    return {
        **found,
        "name": name,
        "title": name.replace("_", " "),
        "commit": found["environment"].get("commit") if "environment" in found else None,
        "rows": [[_written(value) for value in row] for row in found["rows"]],
        "scores": _scores(name, card, baselines) if is_run else [],
        "panels": _curves(name, card, baselines) if is_run else [],
    }


def _scores(task: str, card: Card, baselines: Mapping[str, Card]) -> list[dict[str, Any]]:
    """Return each score of a short run: its mean, the untrained baseline, and the comparisons."""
    figures = card["examinations"][task]["figures"]

    def at_floor(score: str, by_seed: Mapping[str, Any]) -> bool:
        floor, found = number(figures["floors"].get(score)), list(values(by_seed).values())
        higher = figures["higher_is_better"][score]
        return floor is not None and not clear_of(floor, found, score, higher_is_better=higher)

    return [
        {
            "name": score,
            "value": f"{fmean(values(by_seed).values()):.4g}",
            "floor": _written(figures["floors"].get(score)),
            "at_floor": at_floor(score, by_seed),
            "beside": beside(card, baselines, task, score),
        }
        for score, by_seed in figures["scores"].items()
        if by_seed
    ]


def _curves(task: str, card: Card, baselines: Mapping[str, Card]) -> list[Panel]:
    """Return the validation loss over the updates, with that of the baselines."""
    lines: list[Series] = []
    for name, each in {card["name"]: card, **baselines}.items():
        found = each["examinations"].get(task)
        if found and found["applies"]:
            curves = [
                {float(step): v for step, v in curve if isinstance(v, int | float)}
                for curve in found["figures"]["curves"].values()
            ]
            whole = {x: s for x, s in spread(curves).items() if s.n == len(curves)}
            if whole:
                lines.append(Series(name, "", "", whole))
    if not lines:
        return []
    return [Panel(f"{task} validation loss", "Validation loss", "nats", tuple(lines))]


def _written(value: object) -> str:
    if value is None:
        return "\N{EN DASH}"
    found = number(value)
    if found is None or isinstance(value, str):
        return str(value)
    return signed("0" if found == 0 else f"{found:.3g}")
