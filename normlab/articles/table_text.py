"""An article's table as text for a terminal.

Each row has two halves: the article's words, and below them what was found.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len  # the width of text in columns, where a Chinese character takes two

from normlab.articles.table import ShownRow, ShownTable
from normlab.claims.in_words.language import Locale
from normlab.records.labels import one_line
from normlab.terminal import wrapped

_GAP = 2
_NAME = 18  # maximum columns for row names
_NARROW = 10  # minimum columns for a cell

Cell = list[str]
"""The lines of a cell."""


def text_of(table: ShownTable, width: int) -> str:
    """Return a table for a terminal of `width` columns. Wider tables are not an error."""
    widths = _column_widths(table, width)
    heads = [table.head[0], "", *table.head[1:]]
    lines = [*_side_by_side([_folded(*each) for each in zip(heads, widths, strict=True)], widths)]
    lines.append("\u2500" * min(width, sum(widths) + _GAP * (len(widths) - 1)))
    for row in table.rows:
        lines += _row(row, table.language, widths)
    below = [line for each in table.below for line in _folded(each, width, hang=2)]
    notes = [line for each in table.notes for line in _folded(each, width, hang=2)]
    blocks = [block for block in (_folded(table.caption, width), lines, below, notes) if block]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _column_widths(table: ShownTable, width: int) -> list[int]:
    """Return the widths of the columns: row names, names of the halves, and cells."""
    half = max(
        cell_len(name) for name in (table.language.table.article, table.language.table.measured)
    )
    names = [table.head[0], *(row.name for row in table.rows)]
    name = min(_NAME, max(map(cell_len, names)), width // 4)
    texts = [[head] for head in table.head[1:]]
    for row in table.rows:
        for column, (_, words, measured) in zip(texts, row.cells(table.head), strict=True):
            column += [words, *(each.line for each in measured)]
    room = width - name - half - _GAP * (len(texts) + 1)
    return [name, half, *_narrowed([max(map(cell_len, column)) for column in texts], room)]


def _narrowed(widths: Sequence[int], room: int) -> list[int]:
    """Reduce the largest widths until the sum of all fits into the room.

    No width is reduced below `_NARROW`.
    """
    for most in range(max(widths), _NARROW, -1):
        narrowed = [min(width, most) for width in widths]
        if sum(narrowed) <= room:
            return narrowed
    return [min(width, _NARROW) for width in widths]


def _row(row: ShownRow, language: Locale, widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a row. A long name continues in the second half."""
    name = _folded(row.name, widths[0])
    article = [[language.table.article], *([words] for words in row.article)]
    first = [_cell(texts, width) for texts, width in zip(article, widths[1:], strict=True)]
    measured = [[language.table.measured], *([each.line for each in cell] for cell in row.measured)]
    second = [_cell(texts, width) for texts, width in zip(measured, widths[1:], strict=True)]
    height = max(map(len, first))
    yield from _side_by_side([name[:height], *first], widths)
    yield from _side_by_side([name[height:], *second], widths)


def _cell(texts: Sequence[str], width: int) -> Cell:
    return [line for each in texts for line in _folded(each, width)]


def _side_by_side(cells: Sequence[Cell], widths: Sequence[int]) -> Iterator[str]:
    for line in zip_longest(*cells, fillvalue=""):
        padded = [text + " " * (w - cell_len(text)) for text, w in zip(line, widths, strict=True)]
        yield (" " * _GAP).join(padded).rstrip()


def _folded(words: str, width: int, *, hang: int = 0) -> list[str]:
    return wrapped(one_line(words), width, rest=" " * hang, cut=True)
