"""Pages of report cards: the board of all norms, and a page that compares a norm with baselines."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from normlab.formats import pipes
from normlab.metrics.baseline import NOT_CLEAR, clearly_beats
from normlab.metrics.significance import Interval, constant, t_interval
from normlab.records.labels import in_markdown
from normlab.records.pairs import UNPLANNED, Pairing
from normlab.records.record import read_number
from normlab.reports.card_file import CARD_FILE, FOLDER, PAGE_FILE, Card, read_card
from normlab.reports.pages.rendering import page
from normlab.templates import environment

BASELINES = ("ln", "rms", "bn", "none")
BOARD = "cards.md"
_NOISE = 1e-6
"""Smaller entries of the board are rounding errors, and are shown as 0."""
_RANKED = {"translation": "test/nll", "language_model": "test/loss", "bert": "test/mlm_loss"}


def card_pages(root: Path) -> dict[Path, str]:
    """Return the text of the board and of each published card's page, keyed by path."""
    home = root / FOLDER
    cards = {path: read_card(path) for path in sorted(home.glob(f"*/{CARD_FILE}"))}
    pages = {
        path.with_name(PAGE_FILE): card_page(card, baselines_for(card, [home]))
        for path, card in cards.items()
    }
    return {root / BOARD: board(cards.values()), **pages} if cards else {}


def board(cards: Iterable[Card]) -> str:
    """Return the board in Markdown, one row per norm, sorted by mean rank of the losses on text."""
    losses = [(card, [_loss(card, *short) for short in _RANKED.items()]) for card in cards]
    columns = [*zip(*(mine for _, mine in losses), strict=True)]
    ranked: list[tuple[bool, float, str, dict[str, Any]]] = []
    for card, mine in losses:
        ranks = [sum(e < loss for e in every) for loss, every in zip(mine, columns, strict=True)]
        ranked.append((card.sees_later_tokens, fmean(ranks), card.name, card.entries))
    ranked.sort(key=lambda each: each[:3])
    titles = list(dict.fromkeys(title for *_, entries in ranked for title in entries))
    rows: list[list[str]] = []
    for sees_later, _, name, entries in ranked:
        values = [in_markdown(_written(entries.get(title), _NOISE)) for title in titles]
        rows.append([f"`{name}`" + (" \\*" if sees_later else ""), *values])
    table = "\n".join(pipes(["norm", *titles], rows, words=1)).rstrip()
    template = environment("normlab.reports.pages", keep_trailing_newline=True).get_template(BOARD)
    return template.render(table=table, not_clear=NOT_CLEAR)


def _loss(card: Card, task: str, score: str) -> float:
    """Return the mean loss of a card's runs, or infinity if it is NaN or a seed diverged.

    A card without runs of the task has infinity, too.
    """
    runs = card.short_runs(task)
    if runs is None or runs.diverged:
        return math.inf
    loss = fmean(_values(runs.scores[score]))
    return math.inf if math.isnan(loss) else loss


def _values(by_seed: Mapping[str, Any]) -> list[float]:
    """Return a score of each seed, or NaN for a seed that lacks it."""
    numbers = [read_number(value) for value in by_seed.values()]
    return [math.nan if number is None else number for number in numbers]


def baselines_for(card: Card, folders: Sequence[Path]) -> dict[str, Card]:
    """Return the cards of the baselines at a card's scale and placement, except the card itself.

    If several folders have a card of the same baseline, the first one is used.
    """
    content = card.content
    placement = [text for text in content.overrides if text.startswith("placement")]
    suffix = "".join(f"-{text.partition('=')[2]}" for text in placement if text != "placement=pre")
    cards: dict[str, Card] = {}
    for name in (f"{baseline}{suffix}" for baseline in BASELINES):
        for path in (folder / name / CARD_FILE for folder in folders if name != card.name):
            if path.is_file() and (other := read_card(path)).content.scale == content.scale:
                cards.setdefault(name, other)
    return cards


def card_page(card: Card, baselines: Mapping[str, Card]) -> str:
    """Return the HTML page of a card, which compares it with the baselines."""
    tasks = [task for task in card.content.findings if card.short_runs(task)]
    return page(
        "card.html",
        card=card.content,
        facts=[(title, [_written(value)]) for title, value in card.entries.items()],
        baselines=baselines,
        scores={task: scores(task, card, baselines) for task in tasks},
        written=_written,
        not_clear=NOT_CLEAR,
    )


class BaselineDifference(NamedTuple):
    """A baseline with its mean, and a card's mean difference from it with its interval."""

    baseline: str
    mean: float
    difference: float
    interval: Interval | None


class CardScore(NamedTuple):
    """A score of a card's short run: its mean, its untrained baseline, and its differences.

    `floor` is the untrained baseline, and `untrained` is set if the score is not clearly better.
    """

    name: str
    mean: float
    floor: float | None
    untrained: bool
    differences: list[BaselineDifference]


def scores(task: str, card: Card, baselines: Mapping[str, Card]) -> list[CardScore]:
    """Return each score of a short run, with the differences from the baselines that pair with it.

    Runs are paired by the rules for runs that no study planned. If a seed of a side diverged, its
    others are not a fair sample, and there is no difference.
    """
    runs = card.short_runs(task)
    if runs is None:
        return []
    pairings = {
        name: Pairing.of(card.records_of(task), other.records_of(task), UNPLANNED)
        for name, other in baselines.items()
        if not (_diverged(card, task) or _diverged(other, task))
    }
    card_scores: list[CardScore] = []
    for name, by_seed in runs.scores.items():
        if not (values := _values(by_seed)):
            continue
        floor, higher = read_number(runs.floors.get(name)), runs.higher_is_better[name]
        low = floor is not None and not clearly_beats(floor, values, name, higher_is_better=higher)
        pairs = {key: [*pairing.values(name).values()] for key, pairing in pairings.items()}
        differences = [_difference(key, both) for key, both in pairs.items() if both]
        card_scores.append(CardScore(name, fmean(values), floor, low, differences))
    return card_scores


def _diverged(card: Card, task: str) -> bool:
    """Return whether a seed of a card's short runs of a task diverged."""
    runs = card.short_runs(task)
    return runs is not None and bool(runs.diverged)


def _difference(baseline: str, pairs: Sequence[tuple[float, float]]) -> BaselineDifference:
    """Return the mean difference from a baseline, with its interval if there are several pairs."""
    gaps = [ours - theirs for ours, theirs in pairs]
    interval = None if constant(gaps) else t_interval(gaps)
    return BaselineDifference(baseline, fmean(theirs for _, theirs in pairs), fmean(gaps), interval)


def _written(value: object, least: float = 0.0) -> str:
    parsed = read_number(value)
    if value is None or parsed is None or isinstance(value, str):
        return "-" if value is None else str(value)
    return "0" if abs(parsed) <= least else f"{parsed:.3g}"
