"""Prints tables, prose and messages, wrapped to the terminal's width (in a pipe, COLUMNS or 80)."""

import os
import re
import shutil
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TextIO, cast

from rich.cells import cell_len, set_cell_size  # widths in columns; some characters take two

from normlab.config.folders import own_line
from normlab.records.labels import one_line, printable

_PACKAGE = Path(__file__).resolve().parent
_PROSE = 50  # cells with more characters are prose
_LEAST = 36  # minimum number of columns for prose
_GAP = 2
_JOINT = "\N{NO-BREAK SPACE}"  # labels are not wrapped at this space
_FEWEST = 8  # text is not cut to fewer columns
_BLANKS = " \t\n\x0b\x0c\r"  # whitespace except the no-break space
_CHINESE = "[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]"
_MARKS = "，。；：、）」』》\uff1f\uff01"
_OPENING = f'(?:[（「『《]|"(?={_CHINESE}))'
_CLOSING = rf'(?:[{_MARKS}]|"(?![^\s{_MARKS}]))'
_PIECE = re.compile(
    rf"[{_BLANKS}]+|\[[\w.]+ \d+\]"
    rf"|{_OPENING}*(?:{_CHINESE}|(?:(?!{_CHINESE})[^{_BLANKS}])+){_CLOSING}*"
)
"""A piece in which no line breaks: blanks, a check with its number, a word, a Chinese character."""
_COLOURS = re.compile(r"(\x1b\[[0-9;]*m)")


class _Column(NamedTuple):
    """A column of a table: its texts, the header first, and its smallest and largest width."""

    texts: list[str]
    numeric: bool
    least: int
    most: int


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numeric: Sequence[str] = (),
    whole: Sequence[str] = (),
    labels: int = 1,
) -> None:
    """Print a table of plain text to standard output, with `columns` as its header.

    The columns in `numeric` are right-aligned. If the table is too wide, cells are wrapped at
    spaces, except in the columns `numeric` and `whole`. The first `labels` columns are wrapped only
    after commas if that is enough. Columns that still do not fit are printed as a further table,
    which repeats the label columns. rich is not used, because it takes seconds for ten thousand
    rows.
    """
    room = shutil.get_terminal_size().columns
    cells = [*zip(*rows, strict=True)] if rows else [()] * len(columns)
    every: list[_Column] = []
    for n, (name, column_cells) in enumerate(zip(columns, cells, strict=True)):
        texts = [one_line(text) for text in (name, *column_cells)]
        if n < labels:
            texts[1:] = _wrapped_at_commas(texts[1:])
        # A number or path that is wrapped cannot be copied.
        whole_cells = name in (*numeric, *whole)
        every.append(_column(texts, is_numeric=name in numeric, whole=whole_cells))
    widest = max(every[labels:], key=lambda column: column.least, default=None)
    if _least([*every[:labels], *filter(None, [widest])]) > room:
        every[:labels] = [
            _column([text.replace(_JOINT, " ") for text in texts], is_numeric=numbers)
            for texts, numbers, *_ in every[:labels]
        ]
    parts = [every[:labels]]
    for column in every[labels:]:
        if _least((*parts[-1], column)) > room and len(parts[-1]) > labels:
            parts.append(every[:labels])
        parts[-1].append(column)
    alone = len(parts) > 1 and len(parts[-1]) == labels + 1 and len(parts[-2]) > labels + 1
    if alone and _least((*parts[-1], parts[-2][-1])) <= room:
        parts[-1].insert(labels, parts[-2].pop())  # so that no column is alone
    for number, part in enumerate(parts):
        if number:
            print()
        _print_part(part, room)


def _column(texts: list[str], *, is_numeric: bool, whole: bool = False) -> _Column:
    """Return a column whose texts may be wrapped at spaces, unless `whole` is set."""
    most = max(map(cell_len, texts))
    words = max(cell_len(word) for text in texts for word in text.split(" "))
    least = max(words, _LEAST if most > _PROSE and _JOINT not in "".join(texts) else 0)
    return _Column(texts, is_numeric, most if whole else least, most)


def _least(columns: Sequence[_Column]) -> int:
    """Return the smallest width at which columns fit next to each other."""
    return sum(column.least for column in columns) + _GAP * (len(columns) - 1)


def _wrapped_at_commas(texts: Sequence[str]) -> list[str]:
    """Return labels that are wrapped only after commas, such as `ln pre, learning rate 0.01`.

    If a part between commas is long, all labels are returned unchanged.
    """
    parts = [text.split(", ") for text in texts]
    if any(cell_len(part) > _LEAST for each in parts for part in each):
        return [*texts]
    return [", ".join(part.replace(" ", _JOINT) for part in each) for each in parts]


def print_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numeric: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> None:
    """Print a table with one line per row, to read on a terminal or to grep.

    On a terminal, cells are truncated with an ellipsis to fit its width, except in the columns
    `numeric` and `whole`. In a pipe or file, nothing is truncated.
    """
    cells = zip(*rows, strict=True) if rows else [()] * len(columns)
    every: list[_Column] = []
    for name, column_cells in zip(columns, cells, strict=True):
        texts = [one_line(text) for text in (name, *column_cells)]
        most = max(map(cell_len, texts))
        least = most if name in (*numeric, *whole) else min(most, _FEWEST)
        every.append(_Column(texts, name in numeric, least, most))
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    gaps = _GAP * (len(every) - 1)
    most = [column.most for column in every]
    widths = most if sum(most) + gaps <= room else _shares(every, room - gaps)
    for number, row in enumerate(zip(*(column.texts for column in every), strict=True)):
        parts: list[str] = []
        for text, column, width in zip(row, every, widths, strict=True):
            text = text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}\u2026"
            blank = " " * (min(width, _PROSE) - cell_len(text))
            parts.append(blank + text if column.numeric else text + blank)
        print((" " * _GAP).join(parts).rstrip())
        if not number:
            print("\u2500" * min(room, sum(min(width, _PROSE) for width in widths) + gaps))


def _print_part(columns: Sequence[_Column], room: int) -> None:
    """Print columns next to each other. A row takes several lines if a cell is wrapped."""
    gaps = _GAP * (len(columns) - 1)
    widths = _shares(columns, room - gaps)
    for number, row in enumerate(zip(*(column.texts for column in columns), strict=True)):
        cells = [wrapped(text, width) for text, width in zip(row, widths, strict=True)]
        for line in zip_longest(*cells, fillvalue=""):
            parts: list[str] = []
            for text, column, width in zip(line, columns, widths, strict=True):
                blank = " " * (width - cell_len(text))
                parts.append(blank + text if column.numeric else text + blank)
            print((" " * _GAP).join(parts).replace(_JOINT, " ").rstrip())
        if not number:
            print("\u2500" * min(room, sum(widths) + gaps))


def _shares(columns: Sequence[_Column], room: int) -> list[int]:
    """Return the width of each column. The widest columns are narrowed until all columns fit."""
    for level in range(max(column.most for column in columns), -1, -1):
        widths = [max(column.least, min(column.most, level)) for column in columns]
        if sum(widths) <= room:
            return widths
    return [column.least for column in columns]


def wrapped(
    text: str, width: int, *, first: str = "", rest: str = "", cut: bool = False
) -> list[str]:
    """Wrap text at spaces and between Chinese characters.

    The first line begins with `first`, the other lines with `rest`. A closing mark stays with the
    character before it, an opening mark with the character after it, and the number of a check with
    its name. A word that is too long stays whole, so that a command, key or path can be copied.
    With `cut`, it is split, after a dot if possible.
    """
    if cell_len(first + text) <= width:
        return [first + text]
    lines: list[str] = []
    prefix, line = first, ""
    pieces = _PIECE.findall(text)
    if cut:
        pieces = [part for piece in pieces for part in _cut(piece, width - cell_len(rest))]
    for piece in pieces:
        words = piece.rstrip(_BLANKS)
        if words and line.strip(_BLANKS) and cell_len(prefix + line + words) > width:
            lines.append(prefix + line.rstrip(_BLANKS))
            prefix, line = rest, ""
        if words or line or not lines:
            line += piece if words else " " * len(piece)
    return [*lines, prefix + line.rstrip(_BLANKS)]


def _cut(word: str, width: int) -> list[str]:
    """Split a word into parts that each fit on a line, after dots if possible."""
    if cell_len(word) <= width:
        return [word]
    parts = re.findall(r"[^.]+\.*|\.+", word)
    return [part[at : at + width] for part in parts for at in range(0, len(part), width)]


def print_section(
    title: str,
    text: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    drawing: Sequence[str] = (),
) -> None:
    """Print a title, a paragraph, a drawing and a table whose numbers are right-aligned."""
    print()
    print_prose(title)
    print_prose(text, indent="  ")
    for line in drawing:
        print(line)
    if rows:
        first = zip(columns, rows[0], strict=True)
        numeric = [column for column, value in first if not isinstance(value, str)]
        print_table(columns, [[_cell(value) for value in row] for row in rows], numeric=numeric)


def _cell(value: object) -> str:
    """Format a value for display, or `-` if there is none."""
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-" if value is None else f"{value:,}" if type(value) is int else str(value)


def print_prose(text: str, *, indent: str = "", hang: int = 0) -> None:
    """Print a paragraph, wrapped to the terminal's width.

    `hang` is the number of extra spaces before all lines but the first.
    """
    width = shutil.get_terminal_size().columns
    print("\n".join(wrapped(one_line(text), width, first=indent, rest=indent + " " * hang)))


def in_colour() -> bool:
    """Return whether standard output shows colours (it is a terminal, and NO_COLOR is not set)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_line(text: str, output: Any = None) -> None:
    """Print one message, by default to standard output. It is wrapped only on a terminal."""
    output = output or sys.stdout
    lines = text.splitlines()
    if output is not None and output.isatty():
        width = shutil.get_terminal_size().columns
        lines = [part for line in lines for part in wrapped(line, width)]
    print("\n".join(lines), file=output)


def print_error(message: str, *, by: str = "normlab") -> None:
    """Print one message to standard error."""
    print_line(f"{by}: {printable(message)}", sys.stderr)


def crash(error: BaseException) -> str:
    """Return one line that says where an unexpected error happened, followed by its traceback.

    The place is the last call in the user's own folders of options or, if there is none, in
    normlab.
    """
    calls = traceback.extract_tb(error.__traceback__)
    ours = [call for call in calls if Path(call.filename).is_relative_to(_PACKAGE)]
    place = own_line(error) or next((f"{c.filename}, line {c.lineno}" for c in ours[::-1]), "")
    first = (str(error).splitlines() or [""])[0]
    summary = f"unexpected {type(error).__name__} in {place or 'normlab'}: {first}"
    return "\n".join([summary, *"".join(traceback.format_exception(error)).splitlines()])


@contextmanager
def at_work(doing: str) -> Generator[None]:
    """Within the context, show on a terminal what is being done, and its current stage."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from normlab.stages import heard_by

    def show(text: str) -> None:
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    show(doing)
    try:
        with heard_by(lambda stage: show(f"{doing}: {stage}")):
            yield
    finally:
        show("")


class PrintableOutput:
    """Terminal output with control characters escaped, so that they have no effect.

    This is needed because commands print text from records, data sets and models. Codes for colours
    are kept.
    """

    def __init__(self, output: Any) -> None:
        self._output = output

    def write(self, text: str) -> int:
        """Write text with all control characters escaped, except in codes for colours."""
        parts = _COLOURS.split(text)  # text and colours alternate
        self._output.write("".join(p if n % 2 else printable(p) for n, p in enumerate(parts)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


@contextmanager
def printable_output() -> Generator[None]:
    """Let only text and colours reach a terminal, and leave output to a pipe or file unchanged.

    A pipe or file gets UTF-8, whatever the locale. A terminal gets its own encoding, with `?` for a
    character that the encoding does not have.
    """
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, TextIOWrapper) and output.isatty():
            output.reconfigure(errors="replace")
        elif isinstance(output, TextIOWrapper):
            output.reconfigure(encoding="utf-8", errors="backslashreplace")
    stdout = sys.stdout
    if stdout is None or not stdout.isatty():
        yield
        return
    with redirect_stdout(cast("TextIO", PrintableOutput(stdout))):
        yield
