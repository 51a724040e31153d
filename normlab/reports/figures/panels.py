"""Decides how panels stand on a sheet and how lines get their names.

A panel has a gutter at its right where the names of its lines stand, each at the height of its
line's end; where names would lie on each other they move apart, and a hair line leads to the end.
Names keep the ink's colour, for contrast; the mark before them is that of the line. All sizes are
known before anything is drawn, so that nothing is cut and nothing overlaps.
"""

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from normlab.reports.figures.style import Line, Theme, dress, sheet

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

POINTS = 72.0
_NAME, _NOTE = 7.5, 6.5  # sizes of letters in points
_LEADING = 1.25
_GAP = "\N{WORD JOINER}"  # stands where a word may fold
_CHARACTERS = 28  # a name is folded from here
_LEAD, _MARK, _AFTER = 9.0, 8.0, 5.0  # points: to the mark, the mark, after the text
_NEAR = 40.0  # points to the border of the panel up to which an end is near its name
_BETWEEN = 2.5  # points between two names
_TOP, _BOTTOM, _FOOT = 0.32, 0.42, 0.2  # inches above, below a panel, of a line at the foot


@dataclass(frozen=True)
class Label:
    """What stands at the end of a line: its name, and a quieter note beneath, which may be empty.

    Both are rows of text, as `label` folds them.
    """

    name: tuple[str, ...]
    note: tuple[str, ...]

    @property
    def height(self) -> float:
        """Return the height in points."""
        return _LEADING * (_NAME * len(self.name) + _NOTE * len(self.note))

    @property
    def width(self) -> float:
        """Return the width of the text in points."""
        return max(
            max(text_width(row, size) for row in rows)
            for rows, size in ((self.name, _NAME), (self.note, _NOTE))
            if rows
        )


@dataclass(frozen=True)
class End:
    """Where a line ends: in the data's coordinates, None for a line without a point."""

    label: Label
    line: Line
    at: tuple[float, float] | None


def label(name: str, note: str = "") -> Label:
    """Fold a name and a note into rows."""
    return Label(_folded(name), _folded(note))


def _folded(text: str) -> tuple[str, ...]:
    # Names of modules and of config values that are too long fold where their parts end.
    shorter = re.sub(rf"\S{{{_CHARACTERS + 1},}}", _with_gaps, text)
    rows = textwrap.wrap(shorter, _CHARACTERS, break_on_hyphens=False)
    return tuple(row.replace(f"{_GAP} ", "").replace(_GAP, "") for row in rows)


def _with_gaps(word: re.Match[str]) -> str:
    return re.sub(r"(?<=[._=,])(?=.)", f"{_GAP} ", word[0])


def text_width(text: str, size: float) -> float:
    """Return the width of a text in points, as `style.drawing` sets it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(family="DejaVu Sans", size=size)
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]


@dataclass(frozen=True)
class Grid:
    """The measures of a sheet of panels, in inches."""

    rows: int
    columns: int
    width: float
    height: float
    left: float
    gutter: float
    bottom: float
    foot: float

    def size(self) -> tuple[float, float]:
        """Return width and height of the sheet, in whole hundredths: no pixel is half covered."""
        across = self.columns * (self.left + self.width + self.gutter)
        up = self.rows * (_TOP + self.height + self.bottom) + self.foot
        return math.ceil(100 * across) / 100, math.ceil(100 * up) / 100

    def box(self, index: int) -> tuple[float, float, float, float]:
        """Return left, bottom, width and height of a panel as shares of the sheet."""
        row, column = divmod(index, self.columns)
        across, up = self.size()
        left = column * (self.left + self.width + self.gutter) + self.left
        top = row * (_TOP + self.height + self.bottom) + _TOP
        return left / across, 1 - (top + self.height) / up, self.width / across, self.height / up


def panels(
    theme: Theme,
    titles: Sequence[str],
    labels: Sequence[Label],
    *,
    columns: int,
    width: float = 2.7,
    height: float = 1.75,
    left: float = 0.78,  # a tick label such as 7.5 10^-5, and the name of the axis
    bottom: float = _BOTTOM,
    foot: str = "",
) -> "tuple[matplotlib.figure.Figure, list[matplotlib.axes.Axes]]":
    """Return a sheet with one panel a title, each with room for all labels, `foot` beneath.

    `height` is the least; a panel is as high as its labels need.
    """
    needed = sum(label.height + _BETWEEN for label in labels) / POINTS
    widest = max((label.width for label in labels), default=0.0)
    columns = min(columns, len(titles))
    grid = Grid(
        rows=-(-len(titles) // columns),
        columns=columns,
        width=width,
        height=max(height, needed),
        left=left,
        gutter=(_LEAD + _MARK + widest + _AFTER) / POINTS if labels else 0.1,
        bottom=bottom,
        foot=_FOOT if foot else 0.0,
    )
    figure = sheet(*grid.size(), theme)
    all_axes: list["matplotlib.axes.Axes"] = []
    for index, title in enumerate(titles):
        axes = figure.add_axes(grid.box(index))
        axes.set_title(title, loc="left", pad=6, color=theme.ink)
        dress(axes, theme)
        all_axes.append(axes)
    if foot:
        across, up = grid.size()
        figure.text(0.1 / across, 0.08 / up, foot, color=theme.quiet, size=_NOTE)
    return figure, all_axes


def name_lines(axes: "matplotlib.axes.Axes", theme: Theme, ends: Sequence[End]) -> None:
    """Write the names of lines into the gutter; call it last, it fixes the limits of the axes."""
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    points, across = _size(axes)
    to_share = axes.transData + axes.transAxes.inverted()
    shares = [to_share.transform(end.at) if end.at else (1.0, 1.0) for end in ends]
    wanted = [float(y) * points for _, y in shares]
    centres = apart(wanted, [end.label.height + _BETWEEN for end in ends], limit=points)
    for end, (x, y), centre in zip(ends, shares, centres, strict=True):
        height = centre / points
        if end.at:
            axes.plot(
                [x, 1 + (_LEAD - 3) / across],
                [y, height],
                color=end.line.hue,
                linewidth=0.5,
                linestyle="-" if (1 - x) * across < _NEAR else (0, (1, 3)),
                alpha=0.8,
                transform=axes.transAxes,
                clip_on=False,
                label="lead",
            )
        axes.plot(
            [1 + (_LEAD + 1) / across],
            [height],
            color=end.line.hue,
            marker=end.line.mark,
            markersize=4.0,
            transform=axes.transAxes,
            clip_on=False,
            label="mark",
        )
        _write_label(axes, theme, end.label, left=1 + (_LEAD + _MARK) / across, centre=centre)


def _size(axes: "matplotlib.axes.Axes") -> tuple[float, float]:
    """Return height and width of a panel in points."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    extent = axes.get_window_extent()
    return POINTS * extent.height / figure.dpi, POINTS * extent.width / figure.dpi


def _write_label(
    axes: "matplotlib.axes.Axes", theme: Theme, label: Label, *, left: float, centre: float
) -> None:
    top = centre + label.height / 2
    rows = [(row, _NAME, theme.ink) for row in label.name]
    rows += [(row, _NOTE, theme.quiet) for row in label.note]
    for row, size, colour in rows:
        axes.annotate(
            row,
            (left, 0),
            xycoords="axes fraction",
            xytext=(0, top - _LEADING * size / 2),
            textcoords="offset points",
            va="center_baseline",
            size=size,
            color=colour,
            parse_math=False,
        )
        top -= _LEADING * size


def apart(wanted: Sequence[float], heights: Sequence[float], *, limit: float) -> list[float]:
    """Move centres apart until nothing of these heights overlaps, in all as little as possible.

    Their order stays, and what fits stays between 0 and `limit`. Neighbours that touch are joined
    and share the mean of their wishes (the pooling of isotonic regression).
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    # What is above which height, if everything below it were packed tight.
    packed, below = [], 0.0
    for index in order:
        packed.append(below + heights[index] / 2)
        below += heights[index]
    groups: list[tuple[float, int]] = []
    for index, offset in zip(order, packed, strict=True):
        groups.append((wanted[index] - offset, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (high, many), (low, few) = groups[-2], groups[-1]
            groups[-2:] = [((high * many + low * few) / (many + few), many + few)]
    most = max(limit - below, 0.0)
    shifts = [min(max(shift, 0.0), most) for shift, count in groups for _ in range(count)]
    centres = [0.0] * len(wanted)
    for index, offset, shift in zip(order, packed, shifts, strict=True):
        centres[index] = offset + shift
    return centres
