"""Charts on paper: panels drawn with matplotlib, each for light and for dark pages.

Every line differs from the others in hue, in stroke and in mark, so that it can be told apart in
grey print and by colour-blind readers. Hues are those of Okabe and Ito (2008, "Color Universal
Design"), lightened for dark pages to the same contrast. There are no legends: the name of a line is
in the gutter at the right of its panel, and a hair line leads from its end to the name. All sizes
are known before anything is drawn, so that nothing is cut off and nothing overlaps.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.records.atomic import atomic_write
from normlab.records.text import one_line
from normlab.reports.line_names import (
    BETWEEN,
    LEAD,
    NAME,
    NOTE,
    Label,
    labels_of,
    name_lines,
    text_width,
)
from normlab.reports.panels import (
    STEP,
    Event,
    Look,
    Panel,
    Series,
    Theme,
    logarithmic,
    within_decades,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STROKES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKS = ("o", "s", "^", "D", "v", "P")
_MARKS_PER_LINE = 6
_SMALL = 1e-3  # from here ticks are written without powers of ten
_FLAT = 0.02  # share of the values below which their spread does not fill the axis
_TICKS = 7.0  # size of letters in points
_AFTER = 5.0  # points after a name
_LEFT, _TOP, _BOTTOM, _FOOT = 0.78, 0.32, 0.42, 0.2  # inches around a panel
_NAMES_FIT = 24  # ticks of a panel that can all be named
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


@contextmanager
def drawing() -> Iterator[None]:
    """Set matplotlib's settings while a figure is drawn or written, whatever the user's are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, value in _RC.items():
            matplotlib.rcParams[name] = value
        yield


def write(figure: "Figure", path: Path, *, title: str) -> None:
    """Write a figure as `.svg` or `.png` by the ending of its path; the same bytes each time."""
    form = path.suffix.removeprefix(".")
    # The date and the version of the library would make the bytes differ from day to day.
    nothing = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing(), atomic_write(path, "wb") as file:
        figure.savefig(file, format=form, dpi=200, metadata={**nothing[form], "Title": title})


def draw(panels: Sequence[Panel], looks: Mapping[str, Look], theme: Theme) -> "Figure":
    """Draw panels on one sheet, each of their facets as a plot with the names of its lines."""
    plots = [(panel, facet) for panel in panels for facet in panel.facets or ("",)]
    several = max(len(panel.facets) for panel in panels)
    columns = min(several, 3) if several > 1 else min(len(panels), 3)
    notes = [labels_of(panel) for panel in panels]
    events = [event for panel in panels for event in panel.events]
    bands = any(here.n > 1 for p in panels for line in p.series for here in line.points.values())
    parts = [
        *(["line: mean of the seeds still running   band: lowest to highest seed"] * bands),
        *(["ring: loss spike"] * any(event.kind == "spike" for event in events)),
        *(["cross: divergence"] * any(event.kind == "diverged" for event in events)),
    ]
    with drawing():
        figure, all_axes = _sheet(theme, plots, notes, columns, "   ".join(parts))
        shared: dict[str, Axes] = {}
        for (panel, _), axes in zip(plots, all_axes, strict=True):
            first = shared.setdefault(panel.name, axes)
            if first is axes:
                scale_up_axis(axes, panel.values, panel.log_from)
            else:
                axes.sharey(first)
        ends = [
            _draw_facet(axes, panel, facet, looks, theme)
            for (panel, facet), axes in zip(plots, all_axes, strict=True)
        ]
        # The shared scale is known only when all facets are drawn.
        for (panel, _), axes, own in zip(plots, all_axes, ends, strict=True):
            labels = labels_of(panel)
            name_lines(axes, theme, [(labels[row], looks[row], at) for row, at in own])
    return figure


def _draw_facet(
    axes: "Axes", panel: Panel, facet: str, looks: Mapping[str, Look], theme: Theme
) -> list[tuple[str, tuple[float, float] | None]]:
    """Draw the lines and events of a facet; return where the line of each row ends."""
    ends: dict[str, tuple[float, float] | None] = {}
    lines = [line for line in panel.series if line.facet == facet]
    for line in lines:
        ends[line.row] = _draw_line(axes, line, looks[line.row], theme)
    last = max((x for line in panel.series for x in line.points), default=0.0)
    for event in panel.events:
        if event.at == facet:
            _draw_event(axes, event, theme.hues[looks[event.row].hue], theme)
            ends.setdefault(event.row, None)
            last = max(last, float(event.step))
    axes.set_ylabel(panel.unit)
    if panel.tick_names:
        _name_ticks(axes, panel, lines, theme)
    elif panel.across == STEP:
        _steps_axis(axes, last)
    else:
        axes.set_xlabel(panel.across)
        axes.set_xticks(panel.ticks)
    return list(ends.items())


def _draw_line(axes: "Axes", line: Series, look: Look, theme: Theme) -> tuple[float, float]:
    hue = theme.hues[look.hue]
    xs, spreads = list(line.points), list(line.points.values())
    if any(here.n > 1 for here in spreads):
        low, high = [here.low for here in spreads], [here.high for here in spreads]
        axes.fill_between(xs, low, high, color=hue, alpha=0.15, linewidth=0, label="band")
    means = [here.mean for here in spreads]
    apart = max(1, -(-len(xs) // _MARKS_PER_LINE))
    axes.plot(
        xs,
        means,
        color=hue,
        linestyle=_STROKES[look.dashes],
        linewidth=1.3,
        marker=_MARKS[look.mark],
        markersize=3.0,
        # Lines begin at different points, so that marks of lines that coincide stay apart.
        markevery=((look.mark * apart // 4) % apart, apart),
        label="mean",
    )
    return xs[-1], means[-1]


def _draw_event(axes: "Axes", event: Event, hue: str, theme: Theme) -> None:
    if event.kind == "spike":
        style = {"marker": "o", "markersize": 7.0, "markerfacecolor": "none"}
        style |= {"markeredgecolor": hue, "markeredgewidth": 1.1}
    else:
        style = {"marker": "X", "markersize": 7.5, "markerfacecolor": hue, "zorder": 4}
        style |= {"markeredgecolor": theme.paper, "markeredgewidth": 0.7, "clip_on": False}
    y, transform = event.value, axes.transData
    if y is None:  # no loss to draw it at: the top
        y, transform = 1.0, axes.get_xaxis_transform()
    axes.plot(
        [float(event.step)],
        [y],
        transform=transform,
        linestyle="none",
        label="spike" if event.kind == "spike" else "divergence",
        **style,
    )


def _name_ticks(axes: "Axes", panel: Panel, lines: Sequence[Series], theme: Theme) -> None:
    """Name the layers across; of many only the first place of each layer."""
    xs = sorted({x for line in lines for x in line.points})
    names = {x: name for x, name in zip(panel.ticks, panel.tick_names, strict=True) if x in xs}
    outer = {x: name.split()[0] for x, name in names.items()}
    begins = [x for n, x in enumerate(xs) if n == 0 or outer[x] != outer[xs[n - 1]]]
    ticks = {x: outer[x] for x in begins} if len(xs) > _NAMES_FIT else names
    axes.set_xlim(xs[0] - 0.5, xs[-1] + 0.5)
    axes.set_xticks(list(ticks), list(ticks.values()), rotation=90)
    for x in begins[1:] if len(begins) < len(xs) else ():  # layers of several places
        axes.axvline(x - 0.5, color=theme.grid, linewidth=0.5, zorder=0, label="border")


def _steps_axis(axes: "Axes", last: float) -> None:
    """Make the horizontal axis one of training steps, from 0 to a little beyond the `last`."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlim(0, 1.03 * max(last, 1))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.set_xlabel(STEP)


def scale_up_axis(axes: "Axes", values: Sequence[float], log_from: float | None) -> None:
    """Make the vertical axis logarithmic where the values reach far enough, and set its ticks."""
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
    if logarithmic(values, log_from):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=within_decades(high / low), numticks=7))
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
        axes.yaxis.set_minor_formatter(NullFormatter())
        return
    if high - low < _FLAT * abs(high):  # ticks would differ in the last digits only
        axes.set_ylim(low - _FLAT * abs(high), high + _FLAT * abs(high))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    digits = ScalarFormatter(useOffset=False)
    digits.set_scientific(False)
    small = 0 < max(abs(low), abs(high)) < _SMALL
    axes.yaxis.set_major_formatter(FuncFormatter(_plain) if small else digits)


def _plain(value: float, _: object) -> str:
    """Write a tick as it is where that is short, else in powers of ten."""
    if value == 0 or _SMALL <= abs(value) < 1e5:
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    digits, power = f"{value:.2e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    factor = "" if digits == "1" else rf"{digits}\cdot"
    return rf"${factor}10^{{{int(power)}}}$"


# The sheet and the names of lines ----------------------------------------------------------------


def _sheet(
    theme: Theme,
    plots: Sequence[tuple[Panel, str]],
    labels: Sequence[Mapping[str, Label]],
    columns: int,
    foot: str,
) -> "tuple[Figure, list[Axes]]":
    """Return a figure with room for every plot and the names of its lines, measured in inches."""
    from matplotlib.figure import Figure

    flat = [label for own in labels for label in own.values()]
    gutter = (LEAD + max((label.width for label in flat), default=0.0) + _AFTER) / 72
    needed = max(sum(label.height + BETWEEN for label in own.values()) for own in labels) / 72
    width, height = (2.0, max(1.4, needed)) if columns > 2 else (2.7, max(2.0, needed))
    ticks = {name for panel, _ in plots for name in panel.tick_names}
    below = max((text_width(name, _TICKS) / 72 + 0.2 for name in ticks), default=_BOTTOM)
    across = columns * (_LEFT + width + gutter)
    rows = -(-len(plots) // columns)
    up = rows * (_TOP + height + below) + (_FOOT if foot else 0)
    size = math.ceil(100 * across) / 100, math.ceil(100 * up) / 100  # no pixel is half covered
    figure = Figure(figsize=size, facecolor=theme.paper)
    all_axes: list[Axes] = []
    for index, (panel, facet) in enumerate(plots):
        row, column = divmod(index, columns)
        left = column * (_LEFT + width + gutter) + _LEFT
        top = row * (_TOP + height + below) + _TOP
        box = left / size[0], 1 - (top + height) / size[1], width / size[0], height / size[1]
        axes = figure.add_axes(box)
        title = ", ".join(filter(None, (panel.title, facet)))
        axes.set_title(one_line(title), loc="left", pad=6, color=theme.ink, parse_math=False)
        _dress(axes, theme)
        all_axes.append(axes)
    if foot:
        figure.text(0.1 / size[0], 0.08 / size[1], foot, color=theme.quiet, size=NOTE)
    return figure, all_axes


def _dress(axes: "Axes", theme: Theme) -> None:
    axes.set_facecolor(theme.paper)
    axes.grid(axis="y", color=theme.grid, linewidth=0.5)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(theme.quiet)
    axes.tick_params(which="both", colors=theme.quiet, labelcolor=theme.quiet, labelsize=_TICKS)
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set_color(theme.quiet)
        text.set_fontsize(NAME)
