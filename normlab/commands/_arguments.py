"""Arguments that several commands take, and help that fits the terminal's width."""

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

_EXAMPLE = re.compile(r"(\s+\S.*?) {2,}(\S.*)")  # a command, a gap, what it does
_BENEATH = "      "  # before what a command does where that has no room beside it


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fold a parser's epilog: paragraphs, and what an example does.

    Lines that begin with a blank are examples. A command is never folded, so that it can be copied:
    one of more than 80 columns is written in lines that end with a backslash.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for prose, group in groupby(text.splitlines(), lambda line: line[:1].strip() != ""):
            if prose:
                lines += _wrapped(" ".join(group), width)
                continue
            for line in group:
                found = _EXAMPLE.fullmatch(line)
                if found is None or len(line) <= width:
                    lines.append(line)
                else:
                    lines += [found[1], *_wrapped(found[2], width, _BENEATH, _BENEATH)]
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
    parser.add_argument("run", type=as_path, metavar="RUN", help=run)
    parser.add_argument(
        "changes", nargs="*", metavar="key=value", help="settings that replace the run's"
    )
    parser.add_argument(
        "--weights",
        metavar="NAME",
        help="last, average, best_loss, best_<score>; default: those that were tested",
    )


def as_path(text: str) -> Path:
    """Return the path that a text names; refuse the empty text of a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, found nothing; is a variable not set?")
    return Path(text)


def add_compared(
    parser: argparse.ArgumentParser,
    *,
    baseline: str = "ln",
    scores: str = "those of the test",
) -> None:
    """Add `--baseline` and `--score`; `baseline` and `scores` name their defaults."""
    parser.add_argument(
        "--baseline",
        metavar="ROW",
        help=f"the row that the others are compared with, such as bn; default: {baseline}",
    )
    parser.add_argument(
        "--score",
        action="append",
        default=[],
        metavar="NAME",
        help=f"a column for this score; may be repeated; default: {scores}",
    )


def listing(head: str, words: Iterable[str], *, between: str = " ") -> str:
    """Write words after a head, folded at the terminal's width below the first of them."""
    width = shutil.get_terminal_size().columns
    return "\n".join(_wrapped(between.join(words), width, head, " " * len(head)))


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Fold a text at blanks alone, so that commands, keys and paths stay whole."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )
