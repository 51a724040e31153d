"""The parser of a command, and arguments that several commands share."""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from normlab.commands import DOES
from normlab.errors import UserError
from normlab.records.store import RUNS

_LISTED = {"RUN": "runs", "NORM": "norms", "STUDY": "studies"}  # what `normlab list` lists


class Parser(argparse.ArgumentParser):
    """A parser whose errors suggest a similar flag, a `key=value`, or a list to choose from."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the arguments. The error for an unknown argument suggests a similar one."""
        return self._without_unknown(*self.parse_known_args(args, namespace))

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the arguments like `parse_args`, but allow flags between positional arguments."""
        return self._without_unknown(*self.parse_known_intermixed_args(args, namespace))

    def print_usage(self, file: Any = None) -> None:
        """Print the usage for an error, and the commands that list what the arguments may be."""
        super().print_usage(file)
        words = [re.split(r"\W+", str(x.metavar)) for x in self._actions if not x.option_strings]
        for name, kind in _LISTED.items():
            if any(name in each for each in words):
                print(f"`normlab list {kind}` lists the {kind}", file=file)

    def _without_unknown(self, arguments: Any, unknown: Sequence[str]) -> Any:
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._suggestion(unknown)}")
        return arguments

    def _suggestion(self, unknown: Sequence[str]) -> str:
        from normlab.config.error_messages import as_setting

        flag = next((word for word in unknown if word.startswith("--")), "").split("=")[0]
        if near := get_close_matches(flag, self._option_string_actions, n=1, cutoff=0.8):
            return f". Did you mean {near[0]}?"
        if flag and any("key=value" in str(action.metavar) for action in self._actions):
            return f"; {as_setting(flag)}"
        return ""


def command_parser(name: str, epilog: str | None, does: str = "") -> Parser:
    """Return the parser of `normlab NAME`. `does` describes an action, such as `norm new`."""
    does = does or DOES[name]
    return Parser(
        f"normlab {name}",
        description=f"{does[0].upper()}{does[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def action_of(
    command: str, argv: Sequence[str], actions: Mapping[str, str], epilog: str
) -> tuple[str, list[str]]:
    """Return the chosen action of a command, and the arguments after it.

    If the first argument is not one of the `actions`, prints the help or an error, and exits.
    """
    action, *rest = argv or ["--help"]
    if action not in actions:
        parser = command_parser(command, epilog)
        parsers = parser.add_subparsers(metavar="|".join(actions))
        for name, does in actions.items():
            parsers.add_parser(name, help=does)
        parser.parse_args([action])
    return action, rest


def add_run(parser: argparse.ArgumentParser, run: str) -> None:
    """Add RUN with the help text `run`, settings that override the run's, and `--weights`."""
    add = parser.add_argument
    add("run", type=as_run, metavar="RUN", help=run)
    text = "settings that override the run's"
    add("changes", nargs="*", default=[], metavar="key=value", help=text)
    text = "last, average or best_<score>; default: as tested"
    add("--weights", type=as_text, metavar="NAME", help=text)


def add_compared(parser: argparse.ArgumentParser) -> None:
    """Add the runs to compare, and the flags for baseline, columns, order, names and LaTeX."""
    add = parser.add_argument
    text = "a run, or a folder of runs; default: all runs in runs/"
    add("runs", nargs="*", type=as_run, default=[RUNS], metavar="RUN", help=text)
    text = "the row (or norm) to compare with; default: ln"
    add("--baseline", type=as_text, metavar="ROW", help=text)
    text = "the columns, in order, such as test/bleu valid/loss"
    add("--columns", action="extend", nargs="+", default=[], metavar="SCORE", help=text)
    text = "the rows (or norms) after the baseline, in order, such as bn none"
    add("--order", action="extend", nargs="+", default=[], metavar="ROW", help=text)
    text = "names for norms, rows, scores and axes, such as ln=LayerNorm"
    add("--names", action="extend", nargs="+", default=[], metavar="NAME=TEXT", help=text)
    add("--latex", action="store_true", help="print the table in LaTeX (booktabs)")
    uncertainty = parser.add_mutually_exclusive_group()
    for name, text in (
        ("stars", "with --latex: mark p values with stars"),
        ("intervals", "with --latex: add differences with their intervals"),
    ):
        uncertainty.add_argument(
            f"--{name}", dest="uncertainty", action="store_const", const=name, help=text
        )
    parser.set_defaults(uncertainty="")
    add(
        "--data-dir",
        type=as_path,
        metavar="FOLDER",
        help="folder of the test text, if it has moved",
    )
    which = "only ended runs with this value, or one of several (norm=ln,bn); may be repeated"
    add_where(parser, which)


def add_where(parser: argparse.ArgumentParser, which: str) -> None:
    """Add `--where` with the help text `which`. Its values are parsed by `conditions`."""
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help=which)


def add_notes(parser: argparse.ArgumentParser) -> None:
    """Add `--notes`, which prints all notes on a table in full."""
    text = "print all notes on the table in full"
    parser.add_argument("--notes", action="store_true", help=text)


def as_path(text: str) -> Path:
    """Return an argument as a path. Raise ArgumentTypeError if it is empty."""
    return Path(as_text(text, kind="a path"))


def as_text(text: str, *, kind: str = "text") -> str:
    """Return an argument. Raise ArgumentTypeError if it is empty, as for an unset variable."""
    if not text:
        raise argparse.ArgumentTypeError(
            f"expected {kind}, got an empty argument; is a shell variable unset?"
        )
    return text


def as_names(text: str) -> list[str]:
    """Return the names in `NAME,...`. Raise ArgumentTypeError if there is none."""
    return [name for name in as_text(text.strip(","), kind="names").split(",") if name]


def as_run(text: str) -> Path:
    """Return the path RUN or, if it does not exist, the path of the run of that name in `runs/`."""
    place, below = as_path(text), RUNS / text
    return below if not place.exists() and below.exists() else place


def conditions(where: Iterable[str]) -> dict[str, str]:
    """Return the values of `--where KEY=VALUE` by key. Raise UserError for any other form."""
    values: dict[str, str] = {}
    for text in where:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise UserError(f"--where {text} must have the form KEY=VALUE, such as --where norm=bn")
        if (before := values.setdefault(key, value)) != value:
            advice = f"for runs with either value, write --where {key}={before},{value}"
            raise UserError(f"--where {key}={before} and --where {text} are both set; {advice}")
    return values


def setting_at(places: Sequence[Path]) -> str:
    """Return the setting, such as `norm=ln,bn`, that was passed instead of runs, or ""."""
    from normlab.config.error_messages import setting_of

    return "" if any(place.exists() for place in places) else setting_of([*map(str, places)])


def check_compared(arguments: argparse.Namespace) -> None:
    """Raise UserError for a LaTeX flag without `--latex`, or for `KEY=NAME` in `--columns`.

    Also for settings such as `norm=ln` instead of runs.
    """
    if setting := setting_at(arguments.runs):
        words = " ".join(map(str, arguments.runs))
        raise UserError(f"{words}: no such run. Did you mean --where {setting}?")
    if arguments.uncertainty and not arguments.latex:
        raise UserError(f"--{arguments.uncertainty} needs --latex")
    if column := next((each for each in arguments.columns if "=" in each), None):
        raise UserError(f"--columns {column} sets a name; use --names {column}")
