"""The help of commands, within the terminal's width: prose folds, examples keep their columns."""

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterable
from itertools import groupby

_EXAMPLE = re.compile(r"(\s+\S.*?)(?:( {2,})(\S.*))?")  # a command, a gap, what it does
_LEAST = 24  # columns for what a command does
_BENEATH = 6  # the indent of what has no room beside its command


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fold a parser's epilog: paragraphs, and beside or beneath an example what it does.

    Lines that begin with a blank are examples. A command is never folded, so that it can be copied:
    one of more than 80 columns is written in lines that end with a backslash.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for prose, group in groupby(text.splitlines(), lambda line: line[:1].strip() != ""):
            if prose:
                lines += _wrapped(" ".join(group), width)
            else:
                lines += [part for line in group for part in _folded_example(line, width)]
        return "".join(f"{indent}{line}\n" for line in lines)


def listing(head: str, words: Iterable[str], *, between: str = " ") -> str:
    """Write words after a head, folded at the terminal's width below the first of them."""
    width = shutil.get_terminal_size().columns
    return "\n".join(_wrapped(between.join(words), width, head, " " * len(head)))


def _folded_example(line: str, width: int) -> list[str]:
    """Fold what an example does: in its column, or beneath the command where that has no room."""
    found = _EXAMPLE.fullmatch(line)
    if found is None or found[3] is None or len(line) <= width:
        return [line]
    command, gap, does = found.groups()
    mark = "# " if does.startswith("# ") else ""
    beside = width - len(command) - len(gap) >= _LEAST
    before = " " * (len(command) + len(gap) if beside else _BENEATH) + mark
    first, *others = _wrapped(does.removeprefix(mark), width, before, before)
    return [command + first[len(command) :], *others] if beside else [command, first, *others]


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
