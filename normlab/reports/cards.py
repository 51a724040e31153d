"""Report cards of norms: the board of all cards, and a page that compares each with baselines."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from normlab.errors import UserError
from normlab.formats import pipes
from normlab.metrics.baseline import NOT_CLEAR, clearly_beats
from normlab.metrics.significance import paired_interval
from normlab.records.labels import in_markdown
from normlab.records.record import number
from normlab.reports.page import page

FORMAT = "normlab.card/1"
CARD_FILE, PAGE_FILE = "card.json", "card.html"
BASELINES = ("ln", "rms", "bn", "none")
BOARD = "cards.md"
FOLDER = "cards"
Card = Mapping[str, Any]
_NEEDED = ("name", "scale", "overrides", "description", "environment")
_ROUNDING = 1e-3  # nats per token
_RANKED = {"translation": "test/nll", "language_model": "test/loss", "bert": "test/mlm_loss"}
_NOTES = (
    "sorted by the mean rank of the three losses on text; a dash: does not apply, or not examined",
    "a star, in the last rows: sees later tokens in the test, so its losses on text are too low; "
    "stepwise says by how much",
    "alone x ln, step x ln: time relative to `ln`, of the norm (forward, backward) and of a step",
    "nll, BLEU, losses, accuracy: short runs on the built-in corpora and on handwritten digits (a "
    "small residual network), mean of seeds; the page of a card marks a score that is "
    f"{NOT_CLEAR}",
    "largest lr: the largest learning rate that trains, found by doubling; judged by training loss "
    "(in the published cards: on held-out text); +: the largest one tried still trains",
    "grad growth: gradient of the last over the first layer of a deep decoder; first update: how "
    "much one update changes the last layer's output",
    "no warm-up, batch of 4: increase of the toy nll without warm-up, and with statistics of four "
    "sequences",
    "mates, padding: how much a sentence's values change in training with other sentences in its "
    "batch, and with 80 % padding",
    "train-eval gap: loss with running statistics minus loss with batch statistics; stepwise: "
    "difference in nats per token between token by token and the full text",
    "a screening: few seeds, small models, one learning rate for all; for claims, use "
    "`normlab study run`",
)


def read_card(path: Path) -> dict[str, Any]:
    """Read a `card.json`; raises UserError naming the file if it is not a card."""
    try:
        card = json.loads(path.read_text("utf-8"))
        _ = cells(card), [card[key] for key in _NEEDED]
        if card["format"] == FORMAT:
            return card
        error = f"format {card['format']}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as caught:
        error = f"{caught!r:.80}"
    raise UserError(f"{path}: damaged or not a card ({error}); recreate it with normlab norm card")


def card_pages(root: Path) -> dict[Path, str]:
    """Return the text of the board and of each published card's page, by path."""
    home = root / FOLDER
    cards = {path: read_card(path) for path in sorted(home.glob(f"*/{CARD_FILE}"))}
    pages = {
        path.with_name(PAGE_FILE): card_page(card, baselines_for(card, [home]))
        for path, card in cards.items()
    }
    return {root / BOARD: board(cards.values()), **pages} if cards else {}


def cells(card: Card) -> dict[str, Any]:
    """Return a card's entries for the board, by column title."""
    return {k: v for each in card["examinations"].values() for k, v in each["cells"].items()}


def board(cards: Iterable[Card]) -> str:
    """Return the board in Markdown, one row per norm, sorted by mean rank of the losses on text."""
    losses = [(card, [_loss(card, *short) for short in _RANKED.items()]) for card in cards]
    columns = [*zip(*(mine for _, mine in losses), strict=True)]
    ranked: list[tuple[bool, float, str, dict[str, Any]]] = []
    for card, mine in losses:
        ranks = [sum(e < loss for e in every) for loss, every in zip(mine, columns, strict=True)]
        entries = cells(card)
        # If the loss changes when computed token by token, the norm sees later tokens.
        sees_later = (number(entries.get("stepwise")) or 0.0) > _ROUNDING
        ranked.append((sees_later, fmean(ranks), card["name"], entries))
    ranked.sort(key=lambda each: each[:3])
    titles = list(dict.fromkeys(title for *_, entries in ranked for title in entries))
    rows: list[list[str]] = []
    for sees_later, _, name, entries in ranked:
        values = [in_markdown(_written(entries.get(title), 1e-4)) for title in titles]
        rows.append([f"`{name}`" + (" \\*" if sees_later else ""), *values])
    introduction = "Each row is a report card (`normlab norm card NAME`), made at `scale=small`."
    table = pipes(["norm", *titles], rows, words=1, notes=_NOTES)
    return "\n".join(["# The board of norms", "", introduction, "", *table, ""])


def _loss(card: Card, task: str, score: str) -> float:
    """Return the mean loss of a card's runs; infinity if a seed diverged or there are no runs."""
    figures = card["examinations"].get(task, {}).get("figures", {})
    if not figures or figures["diverged"]:
        return math.inf
    return fmean(_values(figures["scores"][score]).values())


def _values(scores: Mapping[str, Any]) -> dict[int, float]:
    return {int(seed): float(number(value) or 0.0) for seed, value in scores.items()}


def baselines_for(card: Card, folders: Sequence[Path]) -> dict[str, Card]:
    """Return the baselines' cards that share a card's scale and placement, without that card.

    If several folders have a baseline, the first one is used.
    """
    placement = [text for text in card["overrides"] if text.startswith("placement")]
    suffix = "".join(f"-{text.partition('=')[2]}" for text in placement if text != "placement=pre")
    cards: dict[str, Card] = {}
    for name in (f"{baseline}{suffix}" for baseline in BASELINES):
        for path in (folder / name / CARD_FILE for folder in folders if name != card["name"]):
            if path.is_file() and (other := read_card(path))["scale"] == card["scale"]:
                cards.setdefault(name, other)
    return cards


def card_page(card: Card, baselines: Mapping[str, Card]) -> str:
    """Return the page of a card; it depends only on the card and the baselines."""
    runs = [
        task
        for task, examination in card["examinations"].items()
        if "scores" in examination["figures"]
    ]
    return page(
        "card.html",
        card=card,
        facts=[(title, [_written(value)]) for title, value in cells(card).items()],
        baselines=baselines,
        scores={task: scores(task, card, baselines) for task in runs},
        written=_written,
    )


def scores(task: str, card: Card, baselines: Mapping[str, Card]) -> list[dict[str, Any]]:
    """Return each score of a short run, with its mean, untrained baseline and `differences`.

    `differences` lists the baselines with common seeds and the same number of steps: the baseline's
    name, its mean, the difference paired by seed, and the interval of the difference.
    """
    figures = card["examinations"][task]["figures"]
    rows: list[dict[str, Any]] = []
    for name, by_seed in figures["scores"].items():
        if not (mine := _values(by_seed)):
            continue
        values, floor = [*mine.values()], number(figures["floors"].get(name))
        higher = figures["higher_is_better"][name]
        low = floor is not None and not clearly_beats(floor, values, name, higher_is_better=higher)
        differences: list[tuple[str, float, float, str]] = []
        for baseline, other in baselines.items():
            its = other["examinations"].get(task, {}).get("figures", {})
            theirs = _values(its.get("scores", {}).get(name, {}))
            shared = sorted(mine.keys() & theirs.keys())
            if shared and its["steps"] == figures["steps"]:
                gap = fmean(mine[seed] - theirs[seed] for seed in shared)
                bounds = ""
                if len(shared) > 1:
                    interval = paired_interval(mine, theirs)
                    bounds = f"[{interval.low:+.3g}, {interval.high:+.3g}]"
                mean = fmean(theirs[seed] for seed in shared)
                differences.append((baseline, mean, gap, bounds))
        score = {"name": name, "value": f"{fmean(values):.4g}", "floor": _written(floor)}
        rows.append({**score, "not_clear": NOT_CLEAR if low else "", "differences": differences})
    return rows


def _written(value: object, least: float = 0.0) -> str:
    parsed = number(value)
    if value is None or parsed is None or isinstance(value, str):
        return "-" if value is None else str(value)
    return "0" if abs(parsed) <= least else f"{parsed:.3g}"
