"""Arguments shared by several commands, and help folded to the terminal's width."""

import argparse
from itertools import groupby
from pathlib import Path

from normlab.commands._terminal import folded

_BELOW = "      "  # indent of a description that does not fit next to its example


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fold the prose of an epilog; lines that begin with a space are commands and stay whole."""

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
    """Return the parser of `normlab NAME`; `does` is its description in one sentence."""
    return argparse.ArgumentParser(
        f"normlab {name}",
        description=does,
        epilog=examples,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )


def add_run(parser: argparse.ArgumentParser, run: str) -> None:
    """Add the arguments RUN, its changed settings, and the weights to load."""
    add = parser.add_argument
    add("run", type=as_path, metavar="RUN", help=run)
    add("changes", nargs="*", metavar="key=value", help="settings that replace the run's")
    weights = "last, average, best_loss, best_<score>; default: the weights that were tested"
    add("--weights", metavar="NAME", help=weights)


def add_compared(
    parser: argparse.ArgumentParser, *, scores: str = "the scores of the test"
) -> None:
    """Add `--baseline` and `--score`; `scores` describes the default of `--score`."""
    text = "the row that the others are compared with, such as bn; default: ln"
    parser.add_argument("--baseline", metavar="ROW", help=text)
    text = f"a column for this score; may be repeated; default: {scores}"
    parser.add_argument("--score", action="append", default=[], metavar="NAME", help=text)


def as_path(text: str) -> Path:
    """Return the path in a text; refuse an empty text, as from a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, found nothing; is a variable not set?")
    return Path(text)
