"""Decides how figures look: paper and ink, the colours, strokes and marks of lines, the file.

Every line differs from the others in hue, in stroke and in mark, so that it is told apart in grey
print and by colour-blind readers. Hues are those of Okabe and Ito (2008, "Color Universal Design"),
for the dark variant lightened to the same contrast. There are no legends: lines carry their names.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from normlab.records.atomic import atomic_write

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Format = Literal["svg", "png"]
_STROKES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_MARKS_A_LINE = 6
_SMALL = 1e-3  # from here ticks are written without powers of ten
_FLAT = 0.02  # share of the values below which their spread does not fill the axis
LOG_FROM = 10.0  # ratio of largest to smallest value from which an axis is logarithmic
TICKS = 7.0  # size of the letters at ticks, in points
_DPI = 200
_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": False,
    "lines.solid_capstyle": "round",
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "ytick.minor.size": 1.5,
    "ytick.minor.width": 0.4,
    "svg.fonttype": "path",  # a reader's machine need not have the font
    "svg.hashsalt": "normlab",
}


@dataclass(frozen=True)
class Theme:
    """The colours of a variant: paper, ink, quiet ink, grid, and the hues of lines."""

    name: str
    paper: str
    ink: str
    quiet: str
    grid: str
    hues: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """How the line of one experiment is drawn."""

    hue: str
    stroke: Any
    mark: str


LIGHT = Theme(
    "light",
    paper="#ffffff",
    ink="#1b1f24",
    quiet="#5b636d",
    grid="#e4e7eb",
    hues=("#0072b2", "#d55e00", "#009e73", "#b8558f", "#3a9bd9", "#b87a00", "#1b1f24"),
)
DARK = Theme(
    "dark",
    paper="#0f1318",
    ink="#e8ebef",
    quiet="#9aa4b0",
    grid="#262d36",
    hues=("#4aa8e8", "#ff8a3d", "#2fd3a2", "#e79ac6", "#9ad5fb", "#f0bd4c", "#e8ebef"),
)
THEMES = (LIGHT, DARK)


def line(theme: Theme, number: int) -> Line:
    """Return the look of a line; the first 7 differ in hue, the first 28 in hue or stroke."""
    return Line(
        theme.hues[number % len(theme.hues)],
        _STROKES[number % len(_STROKES)],
        _MARKS[number % len(_MARKS)],
    )


@contextmanager
def drawing() -> Iterator[None]:
    """Set what a figure takes from matplotlib's settings while it is drawn or written."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not what the user's own settings file says
        for name, value in _RC.items():
            matplotlib.rcParams[name] = value
        yield


def sheet(width: float, height: float, theme: Theme) -> "matplotlib.figure.Figure":
    """Return an empty figure, its size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), facecolor=theme.paper)


def dress(axes: "matplotlib.axes.Axes", theme: Theme) -> None:
    """Give axes the colours of the theme and a quiet grid across."""
    axes.set_facecolor(theme.paper)
    axes.grid(axis="y", color=theme.grid, linewidth=0.5)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(theme.quiet)
    axes.tick_params(which="both", colors=theme.quiet, labelcolor=theme.quiet, labelsize=TICKS)
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set_color(theme.quiet)
        text.set_fontsize(7.5)


def steps_axis(axes: "matplotlib.axes.Axes", last: int) -> None:
    """Make the axis across one of training steps, from 0 to a little beyond the `last`."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlim(0, 1.03 * max(last, 1))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.set_xlabel("training step")


def logarithmic(values: Sequence[float], *, log_from: float = LOG_FROM) -> bool:
    """Tell whether an axis of these values is one: all positive, the largest `log_from` times."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= log_from


def within_decades(ratio: float) -> tuple[int, ...]:
    """Return where a logarithmic axis is marked in each power of ten, by how far it reaches."""
    return (1, 2, 3, 5) if ratio < 30 else (1, 3) if ratio < 300 else (1,)


def scale_up_axis(
    axes: "matplotlib.axes.Axes", values: Sequence[float], *, log_from: float = LOG_FROM
) -> None:
    """Make the axis up logarithmic where the largest positive value is `log_from` the smallest."""
    from matplotlib.ticker import (
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
        ScalarFormatter,
    )

    if not values:
        axes.set_yticks([])
        return
    low, high = min(values), max(values)
    if not logarithmic(values, log_from=log_from):
        if high - low < _FLAT * abs(high):  # ticks would differ in the last digits only
            axes.set_ylim(low - _FLAT * abs(high), high + _FLAT * abs(high))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        digits = ScalarFormatter(useOffset=False)
        digits.set_scientific(False)
        small = 0 < max(abs(low), abs(high)) < _SMALL
        axes.yaxis.set_major_formatter(FuncFormatter(_plain) if small else digits)
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=within_decades(high / low), numticks=7))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _plain(value: float, _: object) -> str:
    """Write a tick as it is where that is short, else in powers of ten."""
    if value == 0 or _SMALL <= abs(value) < 1e5:
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    digits, power = f"{value:.2e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    factor = "" if digits == "1" else rf"{digits}\cdot"
    return rf"${factor}10^{{{int(power)}}}$"


def marked_at(count: int, number: int) -> tuple[int, int]:
    """Say at which of `count` points line `number` has its marks: first mark, and how far apart.

    Lines begin at different points, so that marks of lines that lie on each other stay apart.
    """
    apart = max(1, -(-count // _MARKS_A_LINE))
    return (number * apart // 4) % apart, apart


def write(figure: "matplotlib.figure.Figure", path: Path, *, title: str) -> None:
    """Write a figure as `.svg` or `.png` by the ending of its path; the same bytes each time."""
    form = path.suffix.removeprefix(".")
    # Date and version of the library would make the bytes differ from day to day.
    nothing = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing(), atomic_write(path, "wb") as file:
        figure.savefig(file, format=form, dpi=_DPI, metadata={**nothing[form], "Title": title})
