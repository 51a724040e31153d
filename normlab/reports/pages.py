"""Pages of results/ that are made of committed evidence and belong to no study."""

import json
from pathlib import Path

from normlab.reports.cards import BOARD, FOLDER, PAGE_FILE, baselines_for, board, cards_below
from normlab.reports.depth import depth_table
from normlab.reports.health import health_table
from normlab.reports.manifest import MADE_PAGES


def pages(root: Path) -> dict[Path, str]:
    """Return what each page should be, of those whose evidence is there."""
    places = [root / name for name in MADE_PAGES if (root / name).parent.is_dir()]
    return {place: _text(root, place) for place in places} | card_pages(root)


def card_pages(root: Path) -> dict[Path, str]:
    """Return the board of the published cards and the page of each; none without any."""
    from normlab.reports.html.card import card_page

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
