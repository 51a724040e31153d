"""`normlab norm new|check|card NAME`: create your own norm, check it, make its card."""

import json
import keyword
import os
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._arguments import action_of, as_names, as_path, command_parser
from normlab.config import folders
from normlab.config.overrides import check_option
from normlab.config.registry import paths
from normlab.errors import UserError
from normlab.terminal import at_work, print_prose

if TYPE_CHECKING:
    from normlab.inspection.card import Examined
    from normlab.records.packed import Key
    from normlab.records.record import RunRecord

_EXAMPLES = """examples:
  normlab norm new peak                peak.py and norm/peak.yaml, here
  normlab norm new peak --in own       own/peak.py and own/norm/peak.yaml
  normlab norm check peak include=own  test the norm contract, in seconds
  normlab norm card peak include=own   make its report card, in minutes

The new files work at once, as a norm that divides each token by its root mean
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
_NAME = re.compile(r"[a-z][a-z0-9_]{,39}")  # part of run names
_WORDS = {"null", "true", "false", "nan", "inf", "yes", "no", "on", "off", *keyword.kwlist}

_MODULE = '''"""{title}: one sentence on what it does, and its source (authors, year, equation)."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import Norm
from normlab.norms.moments import Axis, widen
from normlab.norms.tokens import ALL, Tokens


class {title}(Norm):
    """Divides each token by its root mean square: put the formula of the paper here."""

    # The axes (names in `Axis`) that statistics pool over; frozenset() for a norm without any.
    pools: ClassVar[frozenset[Axis]] = frozenset({{"feature"}})

    def __init__(self, dim: int, *, eps: float) -> None:
        # Each keyword is a key in the config; scale and shift say which of the two are learned.
        super().__init__(dim, scale=True, shift=True)
        self.eps = eps

    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens = ALL) -> Float[Tensor, "B P D"]:
        """Return `x` normalized; `tokens.real(x)` is true at tokens, false at padding."""
        wide, weight, bias = widen(x, self.weight, self.bias)  # float32, also under bf16
        square = wide.square().mean(-1, keepdim=True)
        return (wide * (square + self.eps).rsqrt() * weight + bias).to(x.dtype)
'''
_CONFIG = """# normlab train norm={name}
# {title}: one sentence on what it does (authors, year). Pools over feature.
_target_: {module}.{title}
eps: 1.0e-5  # say what it is; annotate a new name with its range in the norm's file
"""


def main(argv: list[str]) -> int:
    """Create the files of a new norm, check norms, or make a report card."""
    action, rest = action_of("norm", argv, _ACTIONS, _EXAMPLES)
    return {"new": new, "check": check, "card": card}[action](rest)


def new(argv: list[str]) -> int:
    """Write the files of a new norm, and print what to do next."""
    parser = command_parser("norm new", None, _ACTIONS["new"])
    parser.add_argument("name", metavar="NAME", help="lowercase letters, digits and _")
    parser.add_argument(
        "--in", dest="folder", type=as_path, help="folder to write to; default: this one"
    )
    arguments = parser.parse_args(argv)
    name = arguments.name
    folder = arguments.folder or (None if _at_checkout() else Path())
    if not _NAME.fullmatch(name) or name in _WORDS:
        rule = "at most 40 lowercase letters, digits and _, beginning with a letter, no keyword"
        raise UserError(f"{name!r:.60} cannot name a norm: choose {rule} of Python or YAML")
    if folder is not None:
        (folder / "norm").mkdir(parents=True, exist_ok=True)  # NORMLAB_PATH may name it already
    files = places(name, folder)
    for path in (*files, paths("norm").get(name)):  # the last path is in another folder
        if path is not None and path.exists():
            raise UserError(f"{os.path.relpath(path)} exists: choose another name")
    known = find_spec(name) if folder is not None else None
    if known is not None and known.origin is not None:  # a mere folder has none, and hides nothing
        raise UserError(f"{name} is the name of another Python module: choose another name")
    _write_files_of(name, files, folder)
    _print_next(name, files, folder)
    return 0


def _write_files_of(name: str, files: Sequence[Path], folder: Path | None) -> None:
    """Write the module and the config of a norm that divides by the root mean square."""
    from normlab.records.manifest import write_files

    title = "".join(map(str.capitalize, name.removesuffix("_norm").split("_"))) + "Norm"
    module = f"normlab.norms.{name}" if folder is None else name
    texts = (text.format(name=name, title=title, module=module) for text in (_MODULE, _CONFIG))
    write_files(dict(zip(files, texts, strict=True)))


def _print_next(name: str, files: Sequence[Path], folder: Path | None) -> None:
    """Print what was written and the commands that come next."""
    include = "" if folder is None else f" include={shlex.quote(str(folder))}"
    commands = {
        f"norm check {name}{include}": "the norm contract, in seconds",
        f"train norm={name} scale=smoke{include}": "a run of about a minute",
        f"norm card {name} scale=smoke{include}": "a small card; full without scale",
    }
    print(
        f"wrote {os.path.relpath(files[0])}    its axes, its parameters, its formula\n"
        f"      {os.path.relpath(files[1])}    its values, and what normlab list norms shows\n"
        "Both work as they are. Put your norm in their place, then:"
    )
    width = max(map(len, commands))
    print("\n".join(f"  normlab {text:<{width}}  {does}" for text, does in commands.items()))
    if folder is None:
        print("Before you commit it: python scripts/golden.py --new  (its reference losses)")


def _at_checkout() -> bool:
    """Return whether the current folder is the root of the checkout that this code is from."""
    return not folders.INSTALLED and Path.cwd() == folders.CONFIG_DIR.parent


def places(name: str, folder: Path | None = None) -> tuple[Path, Path]:
    """Return the paths of a norm's file and config, in a folder or in a checkout of normlab."""
    if folder is not None:
        return folder / f"{name}.py", folder / "norm" / f"{name}.yaml"
    package = Path(__file__).resolve().parents[1]
    return package / "norms" / f"{name}.py", folders.CONFIG_DIR / "norm" / f"{name}.yaml"


def check(argv: list[str]) -> int:
    """Check norms and print one line per check; return 1 if a check fails."""
    parser = command_parser("norm check", None, _ACTIONS["check"])
    parser.add_argument("names", nargs="+", metavar="NAME", help="options of configs/norm")
    names = parser.parse_args(argv).names
    for name in names:  # before torch is loaded
        check_option("norm", name)
    with at_work("loading"):
        from normlab.inspection.bare_norm import BareNorm
        from normlab.inspection.contract import examine
        from normlab.norms.make import make_norm

    violated = False
    for name in names:
        subject = BareNorm(partial(make_norm, name))
        kind = type(subject.new())
        print(f"norm {name}: {kind.__module__}.{kind.__name__}")
        for question, finding in examine(subject):
            violated = violated or finding.verdict == "broken"
            status = f"{_STATUS[finding.verdict]:<16}"
            print_prose(f"  {question:<13}{status}{finding.why_not or finding.answer}", hang=29)
    return int(violated)


def card(argv: list[str]) -> int:
    """Answer the questions of a card, print each answer when it is ready, and write the page."""
    arguments = _card_parser().parse_intermixed_args(argv)
    from normlab.inspection.card import answers, examined
    from normlab.inspection.card import card as assemble
    from normlab.inspection.questions import questions
    from normlab.records.manifest import write_files
    from normlab.records.packed import write_pack
    from normlab.reports.cards import CARD_FILE, FOLDER, PAGE_FILE, Card, baselines_for, card_page
    from normlab.training.runtime import Runtime

    chosen = questions("card", "model", names=arguments.only)
    overrides = [word if "=" in word else f"norm={word}" for word in arguments.norm]
    subject, results = examined(overrides, arguments.folder), arguments.publish
    if results is not None and (subject.scale != "small" or arguments.only):
        raise UserError("--publish needs a complete card at scale=small; omit --only")
    if results is not None and not results.is_dir():
        raise UserError(
            f"--publish {results}: no such folder; the board of published cards is results/cards.md"
        )
    former = None if results is None else _published_card(subject, results)
    if former is not None and not arguments.replace:
        raise UserError(f"{former}: a published card never changes; add --replace to replace it")
    subject.check()
    print_prose(f"card of {subject.name}, scale={subject.scale}: {len(chosen)} questions")
    by_question: dict[str, Any] = {}
    for name, finding in answers(subject, chosen):
        print_prose(f"{name}: {finding['answer']}")
        by_question[name] = finding
    environment = Runtime.start(device=subject.device, precision="fp32", threads=1).environment()
    assembled = assemble(subject, environment, by_question)
    homes = [subject.folder.parent, (results or folders.PUBLISH_TO) / FOLDER]
    page = subject.folder / PAGE_FILE
    records = _records(subject)
    whole = Card.of(assembled, records.values())
    compared = card_page(whole, baselines_for(whole, homes))
    write_pack(subject.folder, records)
    write_files({subject.folder / CARD_FILE: _json(assembled), page: compared})
    print(f"written to {page}")
    if results is not None:
        _publish(subject, assembled, records, results)
        if former is not None:
            print(f"replaced: {former}")
    return 0


def _card_parser() -> ArgumentParser:
    parser = command_parser("norm card", _CARD, _ACTIONS["card"])
    add = parser.add_argument
    text = "the norm and any settings to change; scale=smoke for a run of under a minute"
    add("norm", nargs="*", metavar="NAME | key=value", help=text)
    add("--only", type=as_names, default=[], metavar="NAME,...", help="ask only these questions")
    add("--folder", type=as_path, default=Path("cards"), help="where cards are kept")
    add("--publish", type=as_path, metavar="RESULTS", help="also add it to the board in RESULTS")
    add("--replace", action="store_true", help="replace a published card of the same name")
    return parser


def _json(card: dict[str, Any]) -> str:
    return json.dumps(card, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _published_card(subject: "Examined", results: Path) -> str | None:
    """Return a line with the commits of the published card of this name and of the new one.

    None if none is published.
    """
    from normlab.records.code import checkout_state
    from normlab.reports.cards import CARD_FILE, FOLDER, read_card

    path = results / FOLDER / subject.folder.name / CARD_FILE
    if not path.is_file():
        return None
    published, (commit, dirty) = read_card(path).content["environment"], checkout_state()
    return (
        f"{path.parent}: published is the card of {_code(published['commit'], published['dirty'])}"
        f", this one is that of {_code(commit, dirty)}"
    )


def _code(commit: str | None, dirty: bool | None) -> str:
    from normlab.records.code import commit_text

    return f"commit {commit_text((commit or 'unknown')[:10], dirty)}"


def _records(subject: "Examined") -> "dict[Key, RunRecord | None]":
    """Return the records of a card's short runs, by task and seed."""
    from normlab.config.plain import to_dict
    from normlab.inspection.card import TASKS
    from normlab.records.packed import Key
    from normlab.records.store import RECORD_FILE, RunStore, read_record

    records: dict[Key, RunRecord | None] = {}
    for task in TASKS:
        for seed in subject.seeds(task):
            config = to_dict(subject.config(task, seed=seed))
            folder = RunStore(config["runs_dir"]).run_dir(config)
            if (folder / RECORD_FILE).is_file():
                records[Key(config["choices"]["task"], "", seed)] = read_record(folder)
    return records


def _publish(
    subject: "Examined",
    card: dict[str, Any],
    records: "Mapping[Key, RunRecord | None]",
    results: Path,
) -> None:
    """Copy the card and the records of its short runs, and regenerate the board and the pages."""
    from normlab.records.manifest import accept, write_files
    from normlab.records.packed import write_pack
    from normlab.reports.cards import CARD_FILE, FOLDER, card_pages

    home = results / FOLDER / subject.folder.name
    write_pack(home, records)
    write_files({home / CARD_FILE: _json(card)})
    write_files(card_pages(results))
    accept(results, [home])
    print(f"published in {home}; the board is {results / 'cards.md'}")
