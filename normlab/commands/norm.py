"""`normlab norm new|check|card NAME`: create your own norm, check it, make its card."""

import os
import shlex
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

from normlab.commands._arguments import action_of, as_names, as_path, command_parser
from normlab.config import folders
from normlab.config.error_messages import check_option
from normlab.errors import UserError
from normlab.terminal import at_work, print_prose

_EXAMPLES = """examples:
  normlab norm new peak                peak.py and norm/peak.yaml, here
  normlab norm new peak --in own       own/peak.py and own/norm/peak.yaml
  normlab norm check peak include=own  test the norm contract, in seconds
  normlab norm card peak include=own   make its report card, in minutes

The new files work unchanged, as a norm that divides each token by its root mean
square; comments say what to change. At the root of a checkout of normlab, norm
new without --in adds the norm to normlab itself: normlab/norms, configs/norm.
"""
_CARD = """examples:
  normlab norm card mine                  about twenty minutes on one core
  normlab norm card mine scale=smoke      under a minute: does everything run?
  normlab norm card bn norm.ghost=4       a changed setting has its own card
  normlab norm card mine --only cost,rate  some of the questions
  normlab norm card dyt --publish results  add it to the board, results/cards.md

The short runs are translation, a language model, BERT, and a small residual
network on handwritten digits. They are kept below --folder, and the same
command resumes them. The page compares the norm with ln, rms, bn and none where
their cards exist.
"""
_ACTIONS = {
    "new": "create the module and the config of a norm",
    "check": "test norms against the norm contract; exit status 1 if one violates it",
    "card": "make a norm's report card from fixed questions and short runs",
}
_STATUS = {"fine": "ok", "broken": "violated", "does not apply": "does not apply"}


def main(argv: list[str]) -> int:
    """Create the files of a new norm, check norms, or make a report card."""
    action, rest = action_of("norm", argv, _ACTIONS, _EXAMPLES)
    return {"new": new, "check": check, "card": card}[action](rest)


def new(argv: list[str]) -> int:
    """Write the files of a new norm, and print what to do next."""
    parser = command_parser("norm new", None, _ACTIONS["new"])
    parser.add_argument("name", metavar="NAME", help="lowercase letters, digits and _")
    parser.add_argument(
        "--in", dest="folder", type=as_path, help="folder to write to; default: the current one"
    )
    arguments = parser.parse_args(argv)
    from normlab.inspection.norm.new_norm import at_checkout, write_norm

    folder = arguments.folder or (None if at_checkout() else Path())
    module, config = write_norm(arguments.name, folder)
    print(
        f"wrote {os.path.relpath(module)}    axes, parameters and formula\n      "
        f"{os.path.relpath(config)}    values, and the text that normlab list norms shows\nBoth "
        "work as they are. Replace the formula with your own, then:"
    )
    _print_next(arguments.name, folder)
    return 0


def _print_next(name: str, folder: Path | None) -> None:
    """Print the commands that come after `norm new`."""
    include = "" if folder is None else f" include={shlex.quote(str(folder))}"
    commands = {
        f"norm check {name}{include}": "the norm contract, in seconds",
        f"train norm={name} scale=smoke{include}": "a run of about a minute",
        f"norm card {name} scale=smoke{include}": "a small report card",
    }
    width = max(map(len, commands))
    print("\n".join(f"  normlab {text:<{width}}  {does}" for text, does in commands.items()))
    if folder is None:
        print("Before you commit it: python scripts/golden.py --new  (its reference losses)")


def check(argv: list[str]) -> int:
    """Check norms and print one line per check. Return 1 if a check fails."""
    parser = command_parser("norm check", None, _ACTIONS["check"])
    parser.add_argument("names", nargs="+", metavar="NORM", help="norms to check, such as bn")
    names = parser.parse_args(argv).names
    for name in names:  # before torch is loaded
        check_option("norm", name)
    with at_work("loading"):
        from normlab.inspection.norm.bare_norm import BareNorm
        from normlab.inspection.norm.contract import examine
        from normlab.norms.make import make_norm

    violated = False
    for name in names:
        norm = BareNorm(partial(make_norm, name))
        kind = type(norm.new())
        print(f"norm {name}: {kind.__module__}.{kind.__name__}")
        for question, finding in examine(norm):
            violated = violated or finding.verdict == "broken"
            status = f"{_STATUS[finding.verdict]:<16}"
            print_prose(f"  {question:<13}{status}{finding.why_not or finding.answer}", hang=29)
    return int(violated)


def card(argv: list[str]) -> int:
    """Answer the questions of a card, print each answer when it is ready, and write the page."""
    arguments = _card_parser().parse_intermixed_args(argv)
    from normlab.inspection.card.content import answers, card_of
    from normlab.inspection.card.examined_norm import examined_norm
    from normlab.inspection.card.files import publish_card, published_card, write_card
    from normlab.inspection.questions import questions
    from normlab.reports.pages.cards import BOARD

    chosen = questions("card", "model", names=arguments.only)
    overrides = [word if "=" in word else f"norm={word}" for word in arguments.norm]
    examined, results = examined_norm(overrides, arguments.folder), arguments.publish
    former = None
    if results is not None:
        if arguments.only:
            raise UserError("--publish needs a complete card; omit --only")
        if examined.scale != "small":
            raise UserError(f"--publish needs scale=small, not scale={examined.scale}")
        former = published_card(examined, results)
    if former is not None and not arguments.replace:
        raise UserError(f"{former}; add --replace to overwrite the published card")
    examined.check()
    print_prose(f"card of {examined.name}, scale={examined.scale}: {len(chosen)} questions")
    by_question: dict[str, Any] = {}
    for name, finding in answers(examined, chosen):
        print_prose(f"{name}: {finding['answer']}")
        by_question[name] = finding
    complete = card_of(examined, by_question)
    print(f"written to {write_card(examined, complete, results or folders.PUBLISH_TO)}")
    if results is not None:
        home = publish_card(examined, complete, results)
        print(f"published in {home}; the board is {results / BOARD}")
        if former is not None:
            print(f"replaced: {former}")
    return 0


def _card_parser() -> ArgumentParser:
    parser = command_parser("norm card", _CARD, _ACTIONS["card"])
    add = parser.add_argument
    text = "the norm and any settings to change; scale=smoke for a run of under a minute"
    add("norm", nargs="*", metavar="NORM | key=value", help=text)
    add("--only", type=as_names, default=[], metavar="NAME,...", help="ask only these questions")
    add(
        "--folder",
        type=as_path,
        default=Path("cards"),
        help="folder in which cards are kept; default: cards",
    )
    add("--publish", type=as_path, metavar="RESULTS", help="also add it to the board in RESULTS")
    add("--replace", action="store_true", help="replace a published card of the same name")
    return parser
