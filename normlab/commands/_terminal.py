"""Decides how commands print tables: prose folds at the terminal's width, nothing is cut short."""

import shutil
import sys
import textwrap
from collections.abc import Sequence

_PIPE_WIDTH = 10_000  # wider than any table: what a program reads is not folded
_PROSE = 50  # characters from which a cell is prose
_GAP = 2


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
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    needed = 0
    for index, name in enumerate(columns):
        longest = max(len(text) for text in [name, *(row[index] for row in rows)])
        justify = "right" if name in numeric else "left"
        # Prose folds. Names and figures do not: cut in two they cannot be read or copied.
        table.add_column(name, justify=justify, no_wrap=longest <= _PROSE)
        needed += min(longest, _PROSE) + _GAP
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH
    console = Console(width=max(needed, terminal), highlight=False)
    for row in rows:
        # Text, not str: a value such as [1,2] is no markup.
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for note in notes:
        console.print(Text(note))


def print_prose(text: str, *, indent: str = "") -> None:
    """Print a paragraph, folded at the terminal's width; in one line where a program reads."""
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
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    print()
    for note in notes:
        print(f"- {note}")


def complain(message: str) -> None:
    """Print one message to standard error."""
    print(f"normlab: {message}", file=sys.stderr)
