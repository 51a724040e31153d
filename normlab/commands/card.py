"""`normlab norm card mine`: the report card of a norm."""

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._arguments import HelpFormatter, as_path
from normlab.commands._terminal import print_prose

if TYPE_CHECKING:
    from normlab.inspect.card import Examined

HELP = "the report card of a norm: fixed questions and short runs, one page and one row"
_MOST_PROCESSES = 4  # by default; each has a model, its data and the libraries in memory

_EXAMPLES = """examples:
  normlab norm card mine                    about ten minutes on two cores; a page, a row
  normlab norm card mine scale=smoke        under a minute: does everything run?
  normlab norm card bn norm.ghost=4         another value of the option, and its own card
  normlab norm card dyt placement=post
  normlab norm card mine --only cost,rate   some of the questions
  normlab norm card dyt --publish results   to the board of all norms, results/cards.md

The short runs are translation, a language model, BERT, and a small residual network on handwritten
digits. Natural images and recurrent nets have studies: normlab study run vision_norms, and
normlab study run recurrent.

Answers are kept below --folder. Interrupted, the same command resumes; after a change of the norm's
code or values it asks again. The page compares with the cards of ln, rms, bn and none, where they
were made at the same scale and placement: in --folder, or in results/cards.
"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        "normlab norm card",
        description=HELP[0].upper() + HELP[1:] + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument("overrides", nargs="*", metavar="key=value", help="the norm; scale=smoke")
    result.add_argument("--only", default="", metavar="NAME,...", help="these questions alone")
    result.add_argument(
        "--folder", type=as_path, default=Path("cards"), help="where cards are kept; default: cards"
    )
    result.add_argument(
        "--publish", type=as_path, metavar="RESULTS", help="also add the card to the board there"
    )
    result.add_argument(
        "--processes", type=int, help="questions at a time; default: one per core, at most four"
    )
    result.add_argument("--json", action="store_true", help="print the card as JSON")
    return result


def main(argv: list[str]) -> int:
    """Ask the questions, print each answer as it comes, and write the page."""
    arguments = parser().parse_intermixed_args(argv)
    processes = arguments.processes
    if processes is None:
        processes = min(_MOST_PROCESSES, os.cpu_count() or 1)
    if processes < 1:
        raise ValueError(f"--processes {processes}: give at least 1")

    from normlab.inspect.card import carry_out, examined
    from normlab.inspect.question import questions

    asked = questions("card", [name for name in arguments.only.split(",") if name])
    subject = examined(arguments.overrides, arguments.folder)
    if arguments.publish is not None:
        _check_publishable(subject, arguments.publish)
    subject.check()
    if not arguments.json:
        print(f"card of {subject.name}, scale={subject.scale}: {len(asked)} questions")
    for name, found, kept in carry_out(subject, asked, processes=processes):
        if not arguments.json:
            print_prose(f"{name}: {found['answer']}{' (kept)' if kept else ''}")
    card = _write(subject, arguments.publish)
    if arguments.json:
        print(json.dumps(card, indent=1, sort_keys=True))
    else:
        print(f"written to {subject.folder / 'card.html'}")
    if arguments.publish is not None:
        every = [each.name for each in questions("card")]
        if missing := [name for name in every if name not in card["examinations"]]:
            raise ValueError(f"not published: {', '.join(missing)} missing; leave --only out")
        _publish(subject, card, arguments.publish)
    return 0


def _check_publishable(subject: "Examined", results: Path) -> None:
    """Raise ValueError, before anything is spent, for a card that has no place on the board."""
    if subject.scale != "cpu":
        raise ValueError(f"scale={subject.scale} is a check and no result: publish scale=cpu")
    if not results.is_dir():
        raise ValueError(f"--publish {results}: no such folder; the board is in results")


def _write(subject: "Examined", results: Path | None) -> dict[str, Any]:
    """Write `card.json` and the page, and return the card."""
    from normlab.inspect.card import card as assemble
    from normlab.records.atomic import atomic_write
    from normlab.reports.cards import CARD_FILE, FOLDER, PAGE_FILE, baselines_for, card_page
    from normlab.train.runtime import Runtime

    runtime = Runtime.start(device=subject.device, precision="fp32", threads=1)
    card = assemble(subject, runtime.environment())
    homes = [subject.folder.parent, (results or Path("results")) / FOLDER]
    page = card_page(card, baselines_for(card, homes))
    subject.folder.mkdir(parents=True, exist_ok=True)
    for name, text in ((CARD_FILE, _json(card)), (PAGE_FILE, page)):
        with atomic_write(subject.folder / name) as file:
            file.write(text)
    return card


def _json(card: dict[str, Any]) -> str:
    return json.dumps(card, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _publish(subject: "Examined", card: dict[str, Any], results: Path) -> None:
    """Copy the card and the records of its short runs, and make the board and the pages again."""
    from normlab.records.atomic import atomic_write
    from normlab.reports.cards import CARD_FILE, FOLDER
    from normlab.reports.manifest import accept
    from normlab.reports.pages import card_pages

    home = results / FOLDER / subject.folder.name
    home.mkdir(parents=True, exist_ok=True)
    with atomic_write(home / CARD_FILE) as file:
        file.write(_json(card))
    for source in _records(subject):
        target = home / "records" / source.parent.parent.name / source.parent.name / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    for path, text in card_pages(results).items():
        with atomic_write(path) as file:
            file.write(text)
    accept(results, [home])
    print(f"published in {home}; the board is {results / 'cards.md'}")


def _records(subject: "Examined") -> Sequence[Path]:
    """Return the records of the short runs that were made."""
    from normlab.config.compose import to_dict
    from normlab.inspect.card import TASKS
    from normlab.records.store import RECORD_FILE, RunStore

    configs = [
        to_dict(subject.config(task, seed=seed)) for task in TASKS for seed in subject.seeds(task)
    ]
    paths = [RunStore(config["runs_dir"]).run_dir(config) / RECORD_FILE for config in configs]
    return [path for path in paths if path.is_file()]
