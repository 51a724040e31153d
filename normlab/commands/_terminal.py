"""Tables and prose of commands, within the terminal's width; nothing is cut short.

Where no terminal reads, they have the width that COLUMNS names, or 80.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import zip_longest
from typing import Any, TextIO, cast

from normlab.records.labels import one_line, printable

_PROSE = 50  # characters from which a cell is prose
_LEAST = 36  # columns for prose
_GAP = 2
_COLOURS = re.compile(r"(\x1b\[[0-9;]*m)")


class _Column:
    """A column of a table: its texts, the first its name, and its widths without and with folds."""

    def __init__(self, name: str, cells: Iterable[str], *, numeric: bool) -> None:
        self.texts = [one_line(text) for text in (name, *cells)]
        self.numeric = numeric
        self.longest = max(map(_width, self.texts))
        prose = _LEAST if self.longest > _PROSE else 0
        words = [_width(word) for text in self.texts for word in text.split()]
        # Numbers do not fold: cut in two they cannot be read or copied.
        self.least = self.longest if numeric else max([prose, *words])


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
    blanks, and columns for which there is still no room form a table beneath, after the first
    `labels` columns again.
    """
    # Laid out here and not by rich, which takes seconds for the rows of ten thousand runs.
    room = shutil.get_terminal_size().columns
    cells = zip(*rows, strict=True) if rows else [()] * len(columns)
    every = [
        _Column(name, own, numeric=name in numeric)
        for name, own in zip(columns, cells, strict=True)
    ]
    prose_folded = sum(min(column.longest, _PROSE) + _GAP for column in every)
    if not whole and len(rows) > 1 and prose_folded > room + _GAP:
        vary = [column for column in every if len(set(column.texts[1:])) > 1]
        same = [": ".join(column.texts[:2]) for column in every if column not in vary]
        labels = max(1, sum(column in vary for column in every[:labels]))
        every, notes = vary, [*filter(None, ["; ".join(same)]), *notes]
    parts = [every[:labels]]
    for column in every[labels:]:
        if _total([*parts[-1], column]) > room and len(parts[-1]) > labels:
            parts.append(every[:labels])
        parts[-1].append(column)
    for number, part in enumerate(parts):
        if number:
            print()
        _print_part(part, room)
    for note in notes:
        print_prose(note)


def _print_part(columns: Sequence[_Column], room: int) -> None:
    from rich.console import Console
    from rich.text import Text

    indent = ""
    first: list[str] = []
    if _total(columns) > room and len(columns) > 1:
        # The first cell has a line of its own, and the others are beneath it.
        indent, first, columns = " " * _GAP, columns[0].texts, columns[1:]
    widths = _shares(columns, room - len(indent) - _GAP * (len(columns) - 1))
    rows = zip(*(column.texts for column in columns), strict=True)
    lines = [[indent + line for line in _lines(row, columns, widths)] for row in rows]
    if first:
        lines = [[name, *below] for name, below in zip(first, lines, strict=True)]
    widest = max(_width(line) for each in lines for line in each)
    Console(width=room, highlight=False, soft_wrap=True).print(
        Text("\n".join(lines[0]), style="bold")
    )
    print("\u2500" * min(room, widest))
    print("\n".join(line for each in lines[1:] for line in each))


def _total(columns: Sequence[_Column]) -> int:
    return sum(column.least + _GAP for column in columns) - _GAP


def _width(text: str) -> int:
    """Return the columns that a text takes; some characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _shares(columns: Sequence[_Column], room: int) -> list[int]:
    """Give columns their width; where there is no room, the widest give way until there is."""
    for level in range(max(column.longest for column in columns), -1, -1):
        widths = [max(column.least, min(column.longest, level)) for column in columns]
        if sum(widths) <= room:
            return widths
    return [column.least for column in columns]


def _lines(cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]) -> list[str]:
    """Lay out a row, of several lines where a cell is folded."""
    in_lines = [folded(text, width) for text, width in zip(cells, widths, strict=True)]
    found: list[str] = []
    for line in zip_longest(*in_lines, fillvalue=""):
        parts: list[str] = []
        for text, column, width in zip(line, columns, widths, strict=True):
            blank = " " * (width - _width(text))
            parts.append(blank + text if column.numeric else text + blank)
        found.append((" " * _GAP).join(parts).rstrip())
    return found


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
    print("\n".join(folded(one_line(text), width, first=indent, rest=indent + " " * hang)))


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

    from normlab.tasks.progress import Stage, heard_by

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
        parts = _COLOURS.split(text)  # text and colours in turn
        self._stream.write("".join(p if n % 2 else printable(p) for n, p in enumerate(parts)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printable_output() -> Generator[None]:
    """Let nothing but text and colours reach a terminal; what goes to a program stays as it is."""
    stdout = sys.stdout
    if stdout is None or not stdout.isatty():
        yield
        return
    with redirect_stdout(cast("TextIO", PrintableStream(stdout))):
        yield
