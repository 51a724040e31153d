"""Figures on paper: panels drawn with matplotlib, each for light and for dark pages.

The lines of a figure differ in hue, in stroke and in mark, so that they can be told apart in grey
print and by colour-blind readers. Hues are those of Okabe and Ito (2008, "Color Universal Design"),
lightened for dark pages to the same contrast.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.records.files import atomic_write
from normlab.records.labels import one_line
from normlab.reports.panels import (
    LIGHT,
    STEP,
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
    from matplotlib.lines import Line2D

_STROKES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKS = ("o", "s", "^", "D", "v", "P")
_MARKS_PER_LINE = 6
_FLAT = 0.02  # share of the values below which their spread does not fill the axis
_WIDTH, _HEIGHT, _LEGEND_ROW = 3.2, 2.5, 0.17  # inches of a plot, and of a row of the legend
_LETTERS = 15  # letters of the legend per inch
_NAMES_FIT = 24  # ticks of a panel that can all be named
_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": False,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.solid_capstyle": "round",
    **{f"{axis}tick.labelsize": 7.0 for axis in "xy"},
    **{f"{axis}tick.major.size": 2.5 for axis in "xy"},
    **{f"{axis}tick.major.width": 0.6 for axis in "xy"},
    "svg.fonttype": "path",  # a reader's machine need not have the font
    "svg.hashsalt": "normlab",
}


@contextmanager
def drawing(theme: Theme = LIGHT) -> Iterator[None]:
    """Set matplotlib's settings while a figure is drawn or written, whatever the user's are."""
    import matplotlib

    quiet = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    colours: dict[Any, Any] = {
        **{name: theme.paper for name in ("figure.facecolor", "axes.facecolor")},
        **dict.fromkeys(quiet, theme.quiet),
        **{name: theme.ink for name in ("axes.titlecolor", "text.color")},
        "grid.color": theme.grid,
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(colours | _RC)
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
    """Draw panels on one sheet, each of their facets as a plot, above one legend."""
    from matplotlib.figure import Figure

    plots = [(panel, facet) for panel in panels for facet in panel.facets or ("",)]
    several = max(len(panel.facets) for panel in panels)
    columns = min(several if several > 1 else len(panels), 3)
    rows = -(-len(plots) // columns)
    with drawing(theme):
        handles = _legend(panels, looks, theme)
        longest = max(len(str(handle.get_label())) for handle in handles) + 8
        side_by_side = max(1, min(len(handles), int(columns * _WIDTH * _LETTERS / longest)))
        below = -(-len(handles) // side_by_side) * _LEGEND_ROW + 0.1
        size = (columns * _WIDTH, rows * _HEIGHT + below)
        figure = Figure(figsize=size, layout="constrained")
        shared: dict[str, Axes] = {}
        for number, (panel, facet) in enumerate(plots, 1):
            axes = figure.add_subplot(rows, columns, number, sharey=shared.get(panel.name))
            title = one_line(", ".join(filter(None, (panel.title, facet))))
            axes.set_title(title, parse_math=False)
            if shared.setdefault(panel.name, axes) is axes:
                _scale_up_axis(axes, panel.values, panel.log_from)
            _draw_facet(axes, panel, facet, looks, theme)
        legend = figure.legend(handles=handles, loc="outside lower left", ncols=side_by_side)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


def _draw_facet(
    axes: "Axes", panel: Panel, facet: str, looks: Mapping[str, Look], theme: Theme
) -> None:
    lines = [line for line in panel.series if line.facet == facet]
    for line in lines:
        _draw_line(axes, line, looks[line.row], theme)
    last = max((x for line in panel.series for x in line.points), default=0.0)
    for event in panel.events:
        if event.at == facet:
            # Without a loss to draw it at, an event is at the top.
            y = 1.0 if event.value is None else event.value
            across = axes.get_xaxis_transform() if event.value is None else axes.transData
            style = _event_style(event.kind, theme.hues[looks[event.row].hue], theme)
            axes.plot([float(event.step)], [y], transform=across, label=event.kind, **style)
            last = max(last, float(event.step))
    axes.set_ylabel(panel.unit)
    if panel.tick_names:
        _name_ticks(axes, panel, lines)
    elif panel.across == STEP:
        _steps_axis(axes, last)
    else:
        axes.set_xlabel(panel.across)
        axes.set_xticks(panel.ticks)


def _draw_line(axes: "Axes", line: Series, look: Look, theme: Theme) -> None:
    xs, spreads = list(line.points), list(line.points.values())
    if any(here.n > 1 for here in spreads):
        low, high = [here.low for here in spreads], [here.high for here in spreads]
        hue = theme.hues[look.hue]
        axes.fill_between(xs, low, high, color=hue, alpha=0.15, linewidth=0, label="band")
    apart = max(1, -(-len(xs) // _MARKS_PER_LINE))
    # Lines begin at different points, so that marks of lines that coincide stay apart.
    every = ((look.mark * apart // 4) % apart, apart)
    means = [here.mean for here in spreads]
    axes.plot(xs, means, **_style(look, theme), markevery=every, label="mean")


def _style(look: Look, theme: Theme) -> dict[str, Any]:
    return {
        "color": theme.hues[look.hue],
        "linestyle": _STROKES[look.dashes],
        "linewidth": 1.3,
        "marker": _MARKS[look.mark],
        "markersize": 3.0,
    }


def _event_style(kind: str, hue: str, theme: Theme) -> dict[str, Any]:
    """Return a ring for a loss spike and a cross for a divergence."""
    if kind == "spike":
        shape = {"marker": "o", "markersize": 7.0, "markerfacecolor": "none"}
        return {**shape, "linestyle": "none", "markeredgecolor": hue, "markeredgewidth": 1.1}
    shape = {"marker": "X", "markersize": 7.5, "markerfacecolor": hue, "zorder": 4}
    edge = {"markeredgecolor": theme.paper, "markeredgewidth": 0.7, "clip_on": False}
    return {**shape, **edge, "linestyle": "none"}


def _legend(panels: Sequence[Panel], looks: Mapping[str, Look], theme: Theme) -> "list[Line2D]":
    """Return an entry per row, with its divergences, and one per kind of mark."""
    from matplotlib.lines import Line2D

    events = [event for panel in panels for event in panel.events]
    lines = [line for panel in panels for line in panel.series]
    found: list[Line2D] = []
    for row in dict.fromkeys(each.row for each in (*lines, *events)):
        ended = [e for e in events if e.row == row and e.kind == "diverged"]
        note = f" ({len(ended)} seeds diverged)" if ended else ""
        if len(ended) == 1:
            note = f" (seed {ended[0].seed} diverged at step {ended[0].step:,})"
        found.append(Line2D([], [], **_style(looks[row], theme), label=one_line(row) + note))
    if any(here.n > 1 for line in lines for here in line.points.values()):
        band = {"color": theme.quiet, "alpha": 0.3, "linewidth": 6}
        found.append(Line2D([], [], **band, label="lowest to highest seed, about the mean"))
    for kind, name in (("spike", "loss spike"), ("diverged", "divergence")):
        if any(event.kind == kind for event in events):
            found.append(Line2D([], [], **_event_style(kind, theme.quiet, theme), label=name))
    return found


def _name_ticks(axes: "Axes", panel: Panel, lines: Sequence[Series]) -> None:
    """Name the layers across; of many only every second, or third, and so on."""
    xs = sorted({x for line in lines for x in line.points})
    names = dict(zip(panel.ticks, panel.tick_names, strict=True))
    ticks = xs[:: -(-len(xs) // _NAMES_FIT)]
    axes.set_xlim(xs[0] - 0.5, xs[-1] + 0.5)
    axes.set_xticks(ticks, [names[x] for x in ticks], rotation=90)


def _steps_axis(axes: "Axes", last: float) -> None:
    """Make the horizontal axis one of training steps, from 0 to a little beyond the `last`."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlim(0, 1.03 * max(last, 1))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.set_xlabel(STEP)


def _scale_up_axis(axes: "Axes", values: Sequence[float], log_from: float | None) -> None:
    """Make the vertical axis logarithmic where the values reach far enough, and set its ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if not values:
        axes.set_yticks([])
        return
    low, high = min(values), max(values)
    if logarithmic(values, log_from):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=within_decades(high / low), numticks=7))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        if high - low < _FLAT * abs(high):  # ticks would differ in the last digits only
            axes.set_ylim(low - _FLAT * abs(high), high + _FLAT * abs(high))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))


def _plain(value: float, _: object) -> str:
    """Write a tick as it is where that is short, else in powers of ten."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    digits, power = f"{value:.2e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    factor = "" if digits == "1" else rf"{digits}\cdot"
    return rf"${factor}10^{{{int(power)}}}$"
