"""The names of lines on paper: folded, apart from each other, each with a hair line to its line."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from normlab.records.text import one_line
from normlab.reports.panels import Look, Panel, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME, NOTE = 7.5, 6.5
"""Sizes of letters in points."""
LEAD, BETWEEN = 11.0, 2.5
"""Points from a panel to the names at its right, and between two names."""
_LEADING = 1.25
_GAP = "\N{WORD JOINER}"  # marks where a word may fold
_CHARACTERS = 28  # a longer name is folded


@dataclass(frozen=True)
class Label:
    """The rows of text at the end of a line: its name, and a quieter note, which may be empty."""

    name: tuple[str, ...]
    note: tuple[str, ...]

    @property
    def height(self) -> float:
        return _LEADING * (NAME * len(self.name) + NOTE * len(self.note))

    @property
    def width(self) -> float:
        widths = [text_width(row, NAME) for row in self.name]
        return max(widths + [text_width(row, NOTE) for row in self.note])


def labels_of(panel: Panel) -> dict[str, Label]:
    """Return the label of each row: its name, and which seeds diverged."""
    rows = [line.row for line in panel.series] + [event.row for event in panel.events]
    found: dict[str, Label] = {}
    for row in dict.fromkeys(rows):
        ended = [e for e in panel.events if e.row == row and e.kind == "diverged"]
        note = f"seed {ended[0].seed} diverged at step {ended[0].step:,}" if ended else ""
        note = f"{len(ended)} seeds diverged" if len(ended) > 1 else note
        found[row] = Label(folded(row), folded(note))
    return found


def folded(text: str) -> tuple[str, ...]:
    """Fold a name into rows of text."""
    # Long names of modules and config values fold where their parts end.
    shorter = re.sub(rf"\S{{{_CHARACTERS + 1},}}", _with_gaps, one_line(text))
    rows = textwrap.wrap(shorter, _CHARACTERS, break_on_hyphens=False)
    return tuple(row.replace(f"{_GAP} ", "").replace(_GAP, "") for row in rows)


def _with_gaps(word: re.Match[str]) -> str:
    return re.sub(r"(?<=[._=,])(?=.)", f"{_GAP} ", word[0])


def text_width(text: str, size: float) -> float:
    """Return the width of a text in points, as `drawing` sets it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(family="DejaVu Sans", size=size)
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]


def name_lines(
    axes: "Axes",
    theme: Theme,
    ends: Sequence[tuple[Label, Look, tuple[float, float] | None]],
) -> None:
    """Write the names of lines into the gutter; call it last, it fixes the limits of the axes."""
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    figure = axes.get_figure(root=True)
    assert figure is not None
    extent = axes.get_window_extent()
    points, across = 72 * extent.height / figure.dpi, 72 * extent.width / figure.dpi
    to_share = axes.transData + axes.transAxes.inverted()
    shares = [to_share.transform(at) if at else (1.0, 1.0) for _, _, at in ends]
    wanted = [float(y) * points for _, y in shares]
    heights = [label.height + BETWEEN for label, _, _ in ends]
    for (label, look, at), (x, y), centre in zip(
        ends, shares, apart(wanted, heights, limit=points), strict=True
    ):
        if at:
            axes.plot(
                [x, 1 + (LEAD - 2) / across],
                [y, centre / points],
                color=theme.hues[look.hue],
                linewidth=0.6,
                alpha=0.8,
                linestyle=(0, (1, 2)),
                transform=axes.transAxes,
                clip_on=False,
                label="lead",
            )
        top = centre + label.height / 2
        rows = [(row, NAME, theme.ink) for row in label.name]
        for row, size, colour in [*rows, *((row, NOTE, theme.quiet) for row in label.note)]:
            axes.annotate(
                row,
                (1 + LEAD / across, 0),
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
    packed, below = [], 0.0  # each height if everything below it were packed tight
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
