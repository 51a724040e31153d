"""Writes a report card and the records of its runs to the card's folder, and publishes them."""

from pathlib import Path
from typing import TYPE_CHECKING

from normlab.config.run_config import to_dict
from normlab.errors import UserError
from normlab.inspection.card.examined_norm import ExaminedNorm
from normlab.inspection.card.scales import TASKS
from normlab.records.code import checkout_state, commit_text
from normlab.records.manifest import accept, write_files
from normlab.records.packed import Key, write_pack
from normlab.records.store import RECORD_FILE, RunStore, read_record
from normlab.reports.card_file import CARD_FILE, FOLDER, PAGE_FILE, Card, CardContent, read_card
from normlab.reports.pages.cards import baselines_for, card_page, card_pages

if TYPE_CHECKING:
    from normlab.records.record import RunRecord


def write_card(norm: ExaminedNorm, content: CardContent, published: Path) -> Path:
    """Write a card, its page and the records of its runs, and return the page's path.

    The page compares the card with the cards next to it and with those in `published`.
    """
    page, records = norm.folder / PAGE_FILE, _records(norm)
    card = Card.of(content, records.values())
    compared = card_page(card, baselines_for(card, [norm.folder.parent, published / FOLDER]))
    write_pack(norm.folder, records)
    write_files({norm.folder / CARD_FILE: content.text, page: compared})
    return page


def published_card(norm: ExaminedNorm, results: Path) -> str | None:
    """Return a line with the commits of the published card with this name and of the new card.

    Returns None if no card with this name is published. Raises UserError if the folder `results`
    does not exist.
    """
    if not results.is_dir():
        raise UserError(
            f"--publish {results} is not a folder; the board of published cards is results/cards.md"
        )
    path = results / FOLDER / norm.folder.name / CARD_FILE
    if not path.is_file():
        return None
    published, (commit, dirty) = read_card(path).content.environment, checkout_state()
    return (
        f"{path.parent}: the published card is from "
        f"{_code(published['commit'], published['dirty'])}, this one is from {_code(commit, dirty)}"
    )


def publish_card(norm: ExaminedNorm, content: CardContent, results: Path) -> Path:
    """Publish a card and the records of its short runs, and regenerate the board and all pages.

    Returns the folder of the published card.
    """
    home = results / FOLDER / norm.folder.name
    write_pack(home, _records(norm))
    write_files({home / CARD_FILE: content.text})
    write_files(card_pages(results))
    accept(results, [home])
    return home


def _records(norm: ExaminedNorm) -> "dict[Key, RunRecord | None]":
    """Return the records of a card's short runs, keyed by task and seed."""
    records: dict[Key, RunRecord | None] = {}
    for task in TASKS:
        for seed in norm.seeds(task):
            config = to_dict(norm.config(task, seed=seed))
            folder = RunStore(config["runs_dir"]).run_dir(config)
            if (folder / RECORD_FILE).is_file():
                records[Key(config["choices"]["task"], "", seed)] = read_record(folder)
    return records


def _code(commit: str | None, dirty: bool | None) -> str:
    return f"commit {commit_text((commit or 'unknown')[:10], dirty)}"
