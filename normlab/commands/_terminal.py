"""Decides how commands print tables: as wide as the terminal, and never cut short in a pipe."""

import sys
from collections.abc import Sequence

_PIPE_WIDTH = 10_000  # wider than any table: what a program reads is not folded


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
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

    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(
            name, overflow="fold", justify="right" if name in numeric else "left", vertical="top"
        )
    for row in rows:
        # Text, not str: a value such as [1,2] is no markup.
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for note in notes:
        console.print(Text(note))


def complain(message: str) -> None:
    """Print one message to standard error."""
    print(f"normlab: {message}", file=sys.stderr)
