"""Arguments that several commands take, and help that fits the terminal's width."""

import argparse
from itertools import groupby
from pathlib import Path

from normlab.commands._terminal import folded

_BELOW = "      "  # before what an example does, if it has no room next to the command


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fold the prose of an epilog; lines that begin with a blank are commands and stay whole."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for prose, group in groupby(text.splitlines(), lambda line: line[:1].strip() != ""):
            if prose:
                lines += folded(" ".join(group), width)
                continue
            for line in group:
                command, _, does = line.rpartition("  ")
                if len(line) > width and command.strip():
                    lines += [command.rstrip(), *folded(does, width, first=_BELOW, rest=_BELOW)]
                else:
                    lines.append(line)
        return "".join(f"{indent}{line}\n" for line in lines)


def command_parser(name: str, does: str, examples: str | None) -> argparse.ArgumentParser:
    """Return the parser of `normlab NAME`, which `does` describes in one sentence."""
    return argparse.ArgumentParser(
        f"normlab {name}",
        description=does,
        epilog=examples,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )


def add_run(parser: argparse.ArgumentParser, run: str) -> None:
    """Add RUN, the settings that replace its own, and the weights to load."""
    add = parser.add_argument
    add("run", type=as_path, metavar="RUN", help=run)
    add("changes", nargs="*", metavar="key=value", help="settings that replace the run's")
    weights = "last, average, best_loss, best_<score>; default: the weights that were tested"
    add("--weights", metavar="NAME", help=weights)


def add_compared(
    parser: argparse.ArgumentParser, *, scores: str = "the scores of the test"
) -> None:
    """Add `--baseline` and `--score`; `scores` names the default of the latter."""
    text = "the row that the others are compared with, such as bn; default: ln"
    parser.add_argument("--baseline", metavar="ROW", help=text)
    text = f"a column for this score; may be repeated; default: {scores}"
    parser.add_argument("--score", action="append", default=[], metavar="NAME", help=text)


def as_path(text: str) -> Path:
    """Return the path that a text names; refuse the empty text of a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, found nothing; is a variable not set?")
    return Path(text)
