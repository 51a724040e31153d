"""The page of a norm's report card."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from normlab.records.canonical import number
from normlab.reports.cards import Beside, Card, beside, cells, values
from normlab.reports.html.lines import lines
from normlab.reports.html.page import page, signed

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Score:
    """A score of a short run: its mean, without learning, and beside each baseline."""

    name: str
    value: str
    floor: str
    beside: tuple[Beside, ...]


@dataclass(frozen=True)
class Section:
    """An examination as it is shown; `commit` is its own where it was made apart from the rest."""

    name: str
    title: str
    question: str
    answer: str
    applies: bool
    commit: str | None
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    scores: tuple[Score, ...] = ()
    chart: "Markup | str" = ""


def card_page(card: Card, baselines: Mapping[str, Card]) -> str:
    """Return the page of a card, the same bytes for the same card and baselines."""
    return page(
        "card.html",
        charts=None,
        card=card,
        facts=[
            ("scale", [card["scale"]]),
            ("seeds", card["seeds"]),
            *((title, [_shown(value)]) for title, value in cells(card).items()),
        ],
        baselines=baselines,
        sections=[_section(name, card, baselines) for name in card["examinations"]],
        environment=_facts(card["environment"]),
    )


def _section(name: str, card: Card, baselines: Mapping[str, Card]) -> Section:
    found = card["examinations"][name]
    figures = found["figures"]
    is_run = "curves" in figures
    return Section(
        name=name,
        title=name.replace("_", " "),
        question=found["question"],
        answer=found["answer"],
        applies=found["applies"],
        commit=found["environment"].get("commit") if "environment" in found else None,
        columns=found["columns"],
        rows=[[_shown(value) for value in row] for row in found["rows"]],
        scores=tuple(_scores(name, card, baselines)) if is_run else (),
        chart=_chart(name, card, baselines) if is_run else "",
    )


def _scores(task: str, card: Card, baselines: Mapping[str, Card]) -> list[Score]:
    figures = card["examinations"][task]["figures"]
    found: list[Score] = []
    for score, by_seed in figures["scores"].items():
        if by_seed:
            floor = figures["floors"].get(score)
            mean = fmean(values(by_seed).values())
            pairs = tuple(beside(card, baselines, task, score))
            found.append(Score(score, f"{mean:.4g}", _shown(floor), pairs))
    return found


def _chart(task: str, card: Card, baselines: Mapping[str, Card]) -> "Markup":
    """Draw the validation loss over the updates, the mean over seeds, the baselines beside it."""
    all_cards = {card["name"]: card, **baselines}
    curves = {
        name: found["figures"]["curves"]
        for name, each in all_cards.items()
        if (found := each["examinations"].get(task)) and found["applies"]
    }
    series = {name: _mean_curve(by_seed) for name, by_seed in curves.items()}
    return lines(series, across="updates", up="validation loss, nats")


def _mean_curve(by_seed: Mapping[str, Sequence[Sequence[Any]]]) -> list[tuple[float, float]]:
    """Average the curves of seeds at the steps that all of them have."""
    found: dict[int, list[float]] = {}
    for curve in by_seed.values():
        for step, value in curve:
            if isinstance(value, int | float):
                found.setdefault(step, []).append(value)
    whole = {step: each for step, each in found.items() if len(each) == len(by_seed)}
    return [(float(step), fmean(each)) for step, each in sorted(whole.items())]


def _facts(environment: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: str(value)
        for key, value in sorted(environment.items())
        if isinstance(value, str | int | float | bool) and key != "code_files"
    }


def _shown(value: object) -> str:
    if value is None:
        return "\N{EN DASH}"
    found = number(value)
    if found is None or isinstance(value, str):
        return str(value)
    return signed("0" if found == 0 else f"{found:.3g}")
