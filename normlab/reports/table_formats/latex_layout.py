r"""How a table in LaTeX fits on a page: estimated widths, wrapped names, and columns in blocks.

A table that is wider than a page gets smaller type and wrapped row names and, if that is not
enough, is split into several tables. A table that is taller than a page breaks between pages.
`table.tex` in `templates/` writes what is laid out here.
"""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

PAGE_HEIGHT = 500.0
"""Points: the height of text on a page of LaTeX's article class, without the caption."""
_PAGE_WIDTH = 345.0
"""Points: the width of text on that page, which is the narrowest of the usual formats."""
_SCRIPT = 4.1
"""Points: the width of a digit in an interval, which has script size."""
_BOLD = 1.15
"""The width of a bold digit relative to a normal one."""
_HEAD_LINE = 15
"""The number of characters that a line of a heading may have in any column."""
_NAME_LINE = 18
"""The maximum number of characters on a line of a wrapped row name."""
_NARROW = frozenset(" .,:;()[]|'!ijlt")
_WIDE = frozenset("+\u2212")  # plus and minus signs, also those of plus-minus


class Size(NamedTuple):
    """A font size: its LaTeX command, and in points the digit width, leading and column gap."""

    latex: str
    digit: float
    leading: float
    gap: float


_SIZES = (
    Size("", 5.0, 12.0, 12.0),
    Size(r"\footnotesize\setlength{\tabcolsep}{3pt}", 4.25, 9.5, 6.0),
)


class ScoreCell(NamedTuple):
    """A mean, its standard deviation ("" for one seed), bold if it is the best, and its stars.

    `ended` says how many seeds finished, such as `2/5`, and is "" if all did.
    """

    mean: str
    sd: str = ""
    best: bool = False
    stars: str = ""
    ended: str = ""

    def width(self, digit: float) -> float:
        text = f"{self.mean} + {self.sd}" if self.sd else self.mean
        text += f" ({self.ended})" if self.ended else ""
        return (_digits(text) + len(self.stars)) * digit * (_BOLD if self.best else 1)


class DifferenceCell(NamedTuple):
    """A difference from the baseline, with interval and p value if there are several pairs."""

    difference: str
    low: str = ""
    high: str = ""
    p: str = ""

    def width(self, digit: float) -> float:
        interval = f" [{self.low}, {self.high}], {self.p}" if self.p else ""
        return _digits(self.difference + interval) * _SCRIPT


class TextCell(NamedTuple):
    """Text, or "" for an empty cell."""

    text: str

    def width(self, digit: float) -> float:
        return _digits(self.text) * digit


class MissingCell(NamedTuple):
    """A dash, for a missing value."""

    def width(self, digit: float) -> float:
        return _digits("--") * digit


Cell = ScoreCell | DifferenceCell | TextCell | MissingCell
_EMPTY = TextCell("")


class LatexRow(NamedTuple):
    """A line of a table: the row's name, wrapped if necessary, and a cell for each column.

    A row with `title` spans all columns instead, above the rows of a point.
    """

    name: tuple[str, ...]
    cells: tuple[Cell, ...] = ()
    title: bool = False

    @property
    def height(self) -> int:
        """The number of text lines that the row takes up."""
        return max(1, len(self.name))


class LatexBlock(NamedTuple):
    """Columns that fit side by side: their headings, each as a list of lines, and their rows."""

    head: list[list[str]]
    lines: list[LatexRow]


class Layout(NamedTuple):
    """A table as it fits on pages: its font size, and its blocks from top to bottom."""

    size: Size
    blocks: list[LatexBlock]

    @property
    def is_tall(self) -> bool:
        """Whether the table is taller than a page."""
        return self.size.leading * sum(map(_height, self.blocks)) > PAGE_HEIGHT


def laid_out(head: Sequence[str], lines: Sequence[LatexRow]) -> Layout:
    """Lay out a table so that it fits the page.

    It is kept as it is, or set in smaller type, with wrapped names, or in blocks. `head` holds the
    headings of all columns, beginning with the column of row names.
    """
    narrow = [line if line.title else line._replace(name=_wrapped_name(line)) for line in lines]
    ways = [*((size, lines) for size in _SIZES), (_SIZES[-1], narrow)]
    fitting = (way for way in ways if len(_columns_of_blocks(head, way[1], way[0])) == 1)
    size, lines = next(fitting, (_SIZES[-1], lines))
    blocks = _columns_of_blocks(head, lines, size)
    return Layout(size, [_block(head, lines, columns, size) for columns in blocks])


def _block(
    head: Sequence[str], lines: Sequence[LatexRow], columns: range, size: Size
) -> LatexBlock:
    """Return a block of columns, with the titles, and the rows that are not empty in the block."""
    headings = [_wrapped_heading(head[n + 1], lines, n, size.digit) for n in columns]
    of_block = [
        line if line.title else LatexRow(line.name, tuple(line.cells[n] for n in columns))
        for line in lines
    ]
    shown = [line for line in of_block if line.title or {*line.cells} != {_EMPTY}]
    return LatexBlock([[head[0]], *headings], shown)


def _columns_of_blocks(head: Sequence[str], lines: Sequence[LatexRow], size: Size) -> list[range]:
    """Split the columns into groups that each fit the width of a page. No group is empty."""
    names = [head[0], *(part for line in lines if not line.title for part in line.name)]
    room = _PAGE_WIDTH - size.gap - max(_digits(text) * size.digit for text in names)
    blocks, start, used = list[range](), 0, 0.0
    for place, words in enumerate(head[1:]):
        parts = _wrapped_heading(words, lines, place, size.digit)
        width = max(
            _widest(lines, place, size.digit), *(_digits(part) * size.digit for part in parts)
        )
        if place > start and used + width + size.gap > room:
            blocks.append(range(start, place))
            start, used = place, 0.0
        used += width + size.gap
    return [*blocks, range(start, len(head) - 1)]


def _wrapped_name(row: LatexRow) -> tuple[str, ...]:
    """Return the name of a row, wrapped if it is long."""
    parts = textwrap.wrap(
        " ".join(row.name), _NAME_LINE, break_long_words=False, break_on_hyphens=False
    )
    return tuple(parts) or ("",)


def _wrapped_heading(words: str, lines: Sequence[LatexRow], place: int, digit: float) -> list[str]:
    """Wrap a column's heading so that, if possible, it is no wider than the column's cells."""
    width = max(_HEAD_LINE, int(_widest(lines, place, digit) / digit))
    return textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False) or [""]


def _widest(lines: Sequence[LatexRow], place: int, digit: float) -> float:
    """Return the width of the widest cell of a column."""
    return max((line.cells[place].width(digit) for line in lines if line.cells), default=0.0)


def _digits(text: str) -> float:
    """Estimate the width of a text, in widths of a digit."""
    narrow, wide = (sum(letter in kind for letter in text) for kind in (_NARROW, _WIDE))
    return len(text) - 0.36 * narrow + 0.56 * wide


def _height(block: LatexBlock) -> int:
    """Return the number of text lines that a block takes up with its header and rules."""
    titles = sum(line.title for line in block.lines[1:])  # with space above each but the first
    return 3 + titles + sum(line.height for line in block.lines)
