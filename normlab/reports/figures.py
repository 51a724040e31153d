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
from normlab.reports.charts import KINDS, row_looks
from normlab.reports.panels import LIGHT, STEP, THEMES, Look, Panel, Theme
from normlab.reports.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_STROKES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKS = ("o", "s", "^", "D", "v", "P")
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
    "axes.unicode_minus": False,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
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


def draw_all(runs: Sequence[Run], out: Path, form: str) -> tuple[list[Path], list[str]]:
    """Draw each figure that the runs have in each theme; return the files, and what is lacking."""
    looks = row_looks(runs, dict.fromkeys(run.planned.row for run in runs))
    paths: list[Path] = []
    lacking: list[str] = []
    for name, kind in KINDS.items():
        panels = kind.panels(runs)
        if without := kind.without(runs):
            lacking.append(f"figure {name} {'is without' if panels else 'is left out:'} {without}")
        for theme in THEMES if panels else ():
            ending = "" if theme is LIGHT else f"-{theme.name}"
            paths.append(out / f"{name}{ending}.{form}")
            write(draw(panels, looks, theme), paths[-1], title=kind.title)
    return paths, lacking


def draw(panels: Sequence[Panel], looks: Mapping[str, Look], theme: Theme) -> "Figure":
    """Draw panels on one sheet, each of their facets as a plot, above one legend."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

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
            if shared.setdefault(panel.name, axes) is axes and panel.logarithmic:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(LogFormatter())
                axes.yaxis.set_minor_formatter(LogFormatter())
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
        xs, spreads = list(line.points), list(line.points.values())
        style = _style(looks[line.row], theme)
        if any(here.n > 1 for here in spreads):
            low, high = [here.low for here in spreads], [here.high for here in spreads]
            axes.fill_between(xs, low, high, color=style["color"], alpha=0.15, linewidth=0)
        # Lines have their first mark at different places, so that marks of lines that coincide
        # stay apart.
        every = (0.05 * looks[line.row].mark, 0.3)
        means = [here.mean for here in spreads]
        axes.plot(xs, means, **style, markevery=every, label="mean")
    for event in panel.events:
        if event.at == facet:
            # Without a loss to draw it at, an event is at the top.
            y = 1.0 if event.value is None else event.value
            across = axes.get_xaxis_transform() if event.value is None else axes.transData
            style = _event_style(event.kind, theme.hues[looks[event.row].hue])
            axes.plot([float(event.step)], [y], transform=across, label=event.kind, **style)
    axes.set_ylabel(panel.unit)
    if panel.tick_names:  # of many layers every second, or third, and so on
        xs = sorted({x for line in lines for x in line.points})
        names = dict(zip(panel.ticks, panel.tick_names, strict=True))
        ticks = xs[:: -(-len(xs) // _NAMES_FIT)]
        axes.set_xticks(ticks, [names[x] for x in ticks], rotation=90)
        return
    axes.set_xlabel(panel.across)
    if panel.across == STEP:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    else:
        axes.set_xticks(panel.ticks)


def _style(look: Look, theme: Theme) -> dict[str, Any]:
    return {
        "color": theme.hues[look.hue],
        "linestyle": _STROKES[look.dashes],
        "linewidth": 1.3,
        "marker": _MARKS[look.mark],
        "markersize": 3.0,
    }


def _event_style(kind: str, hue: str) -> dict[str, Any]:
    """Return a ring for a loss spike and a cross for a divergence."""
    shape = {"markersize": 7.0, "linestyle": "none", "markeredgecolor": hue}
    if kind == "spike":
        return {**shape, "marker": "o", "markerfacecolor": "none"}
    return {**shape, "marker": "X", "markerfacecolor": hue, "zorder": 4, "clip_on": False}


def _legend(panels: Sequence[Panel], looks: Mapping[str, Look], theme: Theme) -> "list[Line2D]":
    """Return an entry per row, and one per kind of mark."""
    from matplotlib.lines import Line2D

    events = [event for panel in panels for event in panel.events]
    lines = [line for panel in panels for line in panel.series]
    rows = dict.fromkeys(each.row for each in (*lines, *events))
    found = [Line2D([], [], **_style(looks[row], theme), label=one_line(row)) for row in rows]
    if any(here.n > 1 for line in lines for here in line.points.values()):
        band = {"color": theme.quiet, "alpha": 0.3, "linewidth": 6}
        found.append(Line2D([], [], **band, label="lowest to highest seed, about the mean"))
    for kind, name in (("spike", "loss spike"), ("diverged", "divergence")):
        if any(event.kind == kind for event in events):
            found.append(Line2D([], [], **_event_style(kind, theme.quiet), label=name))
    return found
