"""Tables and prose of commands, within the terminal's width; nothing is cut short.

Where no terminal reads, they have the width that COLUMNS names, or 80.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, TextIO, cast

from normlab.records.text import in_markdown, in_prose, one_line, printable

_PROSE = 50  # characters from which a cell is prose
_LEAST = 36  # columns for prose
_GAP = 2
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    notes: Sequence[str] = (),
    numeric: Sequence[str] = (),
    labels: int = 1,
    whole: bool = False,
) -> None:
    """Print rows of plain text under column names, with notes beneath, to standard output.

    The columns named in `numeric` are set flush right. Where not all has room, columns that are
    the same in all rows become a note (unless the table is to stay `whole`), text folds at
    blanks, and columns for which there is still no room stand in a table beneath, after the first
    `labels` columns again.
    """
    # Laid out here and not by rich, which takes seconds for the rows of ten thousand runs.
    rows = [[one_line(cell) for cell in row] for row in rows]
    columns = [one_line(column) for column in columns]
    room = shutil.get_terminal_size().columns
    if not whole and len(rows) > 1 and _needed(columns, rows) > room + _GAP:
        names = columns[:labels]  # a column is for what varies
        columns, rows, same = _varying(columns, rows)
        labels = max(1, sum(name in names for name in columns[:labels]))
        notes = [same, *notes] if same else notes
    for number, part in enumerate(_parts(columns, rows, numeric, labels, room)):
        if number:
            print()
        _print_part([columns[n] for n in part], [[row[n] for n in part] for row in rows], numeric)
    for note in notes:
        print_note(note)


def print_note(text: str) -> None:
    """Print a line of plain text beside a table, folded as tables are."""
    print("\n".join(folded(one_line(text), shutil.get_terminal_size().columns)))


def _parts(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Sequence[str],
    labels: int,
    room: int,
) -> list[list[int]]:
    """Return the columns of each table that has room, by their numbers."""
    floors, _ = _widths(columns, rows, numeric)
    repeated = list(range(labels))
    parts = [repeated]
    for n in range(labels, len(columns)):
        wide = sum(floors[m] + _GAP for m in (*parts[-1], n)) - _GAP
        if wide > room and len(parts[-1]) > labels:
            parts.append(repeated)
        parts[-1] = [*parts[-1], n]
    return parts


def _print_part(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str]
) -> None:
    from rich.console import Console
    from rich.text import Text

    room = shutil.get_terminal_size().columns
    floors, longest = _widths(columns, rows, numeric)
    indent = ""
    right = [name in numeric for name in columns]
    first: list[str] = []
    if sum(floors) + _GAP * (len(floors) - 1) > room and len(columns) > 1:
        # The first cell has a line of its own, and the others stand beneath it.
        indent, first = " " * _GAP, [columns[0], *(row[0] for row in rows)]
        columns, rows = columns[1:], [row[1:] for row in rows]
        floors, longest, right = floors[1:], longest[1:], right[1:]
    widths = _shares(floors, longest, room - len(indent) - _GAP * (len(floors) - 1))
    lines = [[indent + line for line in _lines(row, widths, right)] for row in (columns, *rows)]
    if first:
        lines = [[name, *below] for name, below in zip(first, lines, strict=True)]
    header, *lines = lines
    Console(width=room, highlight=False, soft_wrap=True).print(
        Text("\n".join(header), style="bold")
    )
    print("\u2500" * min(room, max(_width(line) for each in (header, *lines) for line in each)))
    print("\n".join(line for each in lines for line in each))


def _widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Return the least width of each column, and that of all its text.

    The least is that of the longest word, and more for prose. Figures do not fold: cut in two they
    cannot be read or copied.
    """
    by_column = list(zip(columns, *rows, strict=True))
    longest = [max(map(_width, cells)) for cells in by_column]
    floors = [
        width
        if cells[0] in numeric
        else max(
            _LEAST if width > _PROSE else 0, *(_width(w) for text in cells for w in text.split())
        )
        for cells, width in zip(by_column, longest, strict=True)
    ]
    return floors, longest


def _needed(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the width of a table whose prose alone is folded."""
    longest = [max(map(_width, column)) for column in zip(columns, *rows, strict=True)]
    return sum(min(width, _PROSE) + _GAP for width in longest)


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


def _shares(floors: Sequence[int], longest: Sequence[int], room: int) -> list[int]:
    """Give columns their width; where there is no room, the widest give way until there is."""

    def at(level: int) -> list[int]:
        return [max(low, min(wide, level)) for low, wide in zip(floors, longest, strict=True)]

    low, high = 0, max(longest)
    while low < high:  # the highest level at which all have room
        level = (low + high + 1) // 2
        low, high = (level, high) if sum(at(level)) <= room else (low, level - 1)
    return at(low)


def _lines(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    """Lay out a row, of several lines where a cell is folded."""
    in_lines = [folded(text, width) for text, width in zip(cells, widths, strict=True)]
    return [
        (" " * _GAP)
        .join(
            " " * (width - _width(text)) + text if flush else text + " " * (width - _width(text))
            for text, width, flush in zip(line, widths, right, strict=True)
        )
        .rstrip()
        for line in zip_longest(*in_lines, fillvalue="")
    ]


def folded(
    text: str, width: int, *, whole_words: bool = True, first: str = "", rest: str = ""
) -> list[str]:
    """Fold text at blanks; a word that is longer stays whole, so that it can be copied.

    `first` begins the first line, `rest` those below it.
    """
    if _width(first + text) <= width:
        return [first + text]
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=not whole_words,
        break_on_hyphens=False,
    )


def print_prose(text: str, *, indent: str = "", hang: int = 0) -> None:
    """Print a paragraph, folded at the terminal's width; all lines but the first `hang` deeper."""
    width = shutil.get_terminal_size().columns
    below = indent + " " * hang
    lines = folded(one_line(text), width, first=indent, rest=below)
    print("\n".join(lines))


def print_markdown(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    notes: Sequence[str] = (),
    numeric: Sequence[str] = (),
    **layout: object,
) -> None:
    """Print the same table in Markdown, the notes as a list beneath; it has no `layout`."""
    del layout
    rules = ["---:" if name in numeric else "---" for name in columns]
    for cells in (columns, rules, *rows):
        print("| " + " | ".join(map(in_markdown, cells)) + " |")
    print()
    for note in notes:
        print(f"- {in_prose(note)}")


def complain(message: str) -> None:
    """Print one message to standard error."""
    print(f"normlab: {printable(message)}", file=sys.stderr)


@contextmanager
def at_work(doing: str, *, done: int = 0, total: int | None = None) -> Generator[None]:
    """Within the block, show a bar on the standard error; in a pipe nothing.

    It is there before what the block imports, and gone at its end. Without a `total` the stages
    that are said within the block move it.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from normlab.progress import Stage, heard_by

    progress = Progress(
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=4,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = progress.add_task(doing, completed=done, total=total)

    def listen(stage: Stage) -> None:
        if total is None:
            progress.update(task, description=str(stage), completed=stage.done, total=stage.total)

    with progress, heard_by(listen):
        yield


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
