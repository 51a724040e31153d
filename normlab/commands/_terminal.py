"""Decides how commands print tables: prose folds at the terminal's width, nothing is cut short."""

import re
import shutil
import sys
import textwrap
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, TextIO, cast

from normlab.records.text import in_markdown, in_prose, one_line, printable

_PIPE_WIDTH = 10_000  # wider than any table: what a program reads is not folded
_PROSE = 50  # characters from which a cell is prose
_GAP = 2
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    notes: Sequence[str] = (),
    numeric: Sequence[str] = (),
) -> None:
    """Print rows of plain text under column names, with notes beneath, to standard output.

    The columns named in `numeric` are set flush right.
    """
    from rich.console import Console
    from rich.text import Text

    # Laid out here and not by rich, which takes seconds for the rows of ten thousand runs.
    rows = [[one_line(cell) for cell in row] for row in rows]
    columns = [one_line(column) for column in columns]
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH
    longest, needed = _needed(columns, rows)
    if needed > terminal + _GAP and len(rows) > 1:  # a column is for what varies
        columns, rows, same = _varying(columns, rows)
        longest, needed = _needed(columns, rows)
        notes = [same, *notes] if same else notes
    widths = _shares(longest, max(needed, terminal) - _GAP * len(longest))
    right = [name in numeric for name in columns]
    console = Console(width=sum(widths) + _GAP * len(widths), highlight=False)
    (header,) = _lines(columns, widths, right)
    console.print(Text(header, style="bold"))
    print("\u2500" * (sum(widths) + _GAP * (len(widths) - 1)))
    for row in rows:
        print("\n".join(_lines(row, widths, right)))
    console.width = max(needed, terminal)
    for note in notes:
        console.print(Text(one_line(note)))


def _needed(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[int], int]:
    """Return the longest cell of each column, and the width of a table whose prose is folded."""
    longest = [max(map(_width, column)) for column in zip(columns, *rows, strict=True)]
    # Prose folds. Names and figures do not: cut in two they cannot be read or copied.
    return longest, sum(min(width, _PROSE) + _GAP for width in longest)


def _varying(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]], str]:
    """Leave out the columns that are the same in all rows; return them as a note."""
    kept = [n for n in range(len(columns)) if len({row[n] for row in rows}) > 1]
    same = [f"{columns[n]}: {rows[0][n]}" for n in range(len(columns)) if n not in kept]
    return [columns[n] for n in kept], [[row[n] for n in kept] for row in rows], "; ".join(same)


def _width(text: str) -> int:
    """Return the columns that a text takes; some characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _shares(longest: Sequence[int], room: int) -> list[int]:
    """Give columns their width; where there is no room, those of prose share what is left."""
    widths = list(longest)
    prose = sorted((n for n in range(len(widths)) if widths[n] > _PROSE), key=widths.__getitem__)
    room -= sum(width for width in widths if width <= _PROSE)
    for left, n in zip(range(len(prose), 0, -1), prose, strict=True):
        widths[n] = min(widths[n], room // left)
        room -= widths[n]
    return widths


def _lines(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    """Lay out a row, of several lines where a cell is folded."""
    folded = [
        [text] if _width(text) <= width else textwrap.wrap(text, width)
        for text, width in zip(cells, widths, strict=True)
    ]
    return [
        (" " * _GAP)
        .join(
            " " * (width - _width(text)) + text if flush else text + " " * (width - _width(text))
            for text, width, flush in zip(line, widths, right, strict=True)
        )
        .rstrip()
        for line in zip_longest(*folded, fillvalue="")
    ]


def print_prose(text: str, *, indent: str = "") -> None:
    """Print a paragraph, folded at the terminal's width; in one line where a program reads."""
    text = printable(text)
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)
        indent = ""
    print(f"{indent}{text}")


def print_markdown(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    notes: Sequence[str] = (),
    numeric: Sequence[str] = (),
) -> None:
    """Print the same table in Markdown, the notes as a list beneath."""
    rules = ["---:" if name in numeric else "---" for name in columns]
    for cells in (columns, rules, *rows):
        print("| " + " | ".join(map(in_markdown, cells)) + " |")
    print()
    for note in notes:
        print(f"- {in_prose(note)}")


def complain(message: str) -> None:
    """Print one message to standard error."""
    print(f"normlab: {printable(message)}", file=sys.stderr)


class PrintableStream:
    """A stream to a terminal that shows control characters instead of obeying them.

    Whatever a command prints may come from a record, a text or a model. Colours pass.
    """

    def __init__(self, stream: Any) -> None:
        """Write to `stream`."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, all but colours made printable."""
        parts = _COLOUR.split(text)
        colours = [*_COLOUR.findall(text), ""]
        shown = "".join(
            printable(part) + colour for part, colour in zip(parts, colours, strict=True)
        )
        self._stream.write(shown)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printable_output() -> Generator[None]:
    """Let nothing but text and colours reach a terminal; what goes to a program stays as it is."""
    stdout = sys.stdout
    if stdout is None or not stdout.isatty():
        yield
        return
    sys.stdout = cast("TextIO", PrintableStream(stdout))
    try:
        yield
    finally:
        sys.stdout = stdout
