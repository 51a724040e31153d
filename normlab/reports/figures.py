"""Figures for papers: panels drawn with matplotlib, for light and for dark pages.

The lines of a figure differ in hue, dashes and marker, so that they can be told apart in grayscale
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
from normlab.reports.panels import DASHES, LIGHT, MARKS, STEP, THEMES, Look, Panel, Theme
from normlab.reports.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STROKES: dict[str, Any] = dict(
    zip(DASHES, ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5))), strict=True)
)
_MARKS: dict[str, str] = dict(zip(MARKS, "os^DvP", strict=True))
_WIDTH, _HEIGHT, _LEGEND_ROW = 3.2, 2.5, 0.17  # inches of a plot, and of a legend row
_LETTERS = 15  # legend letters per inch
_NAMES_FIT = 24  # the most ticks of a panel that are all labelled
_BAND = "lowest to highest seed, about the mean"
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
    "lines.linewidth": 1.3,
    "lines.markersize": 3.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "svg.fonttype": "path",  # paths, since a reader's machine may lack the font
    "svg.hashsalt": "normlab",
}


@contextmanager
def drawing(theme: Theme = LIGHT) -> Iterator[None]:
    """Set matplotlib's settings while a figure is drawn or written, overriding the user's."""
    import matplotlib

    quiet = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    colours: dict[Any, Any] = {
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), theme.paper),
        **dict.fromkeys(quiet, theme.quiet),
        **dict.fromkeys(("axes.titlecolor", "text.color"), theme.ink),
        "grid.color": theme.grid,
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(colours | _RC)
        yield


def write(figure: "Figure", path: Path, *, title: str) -> None:
    """Write a figure as `.svg` or `.png`, by the suffix of its path; reproducible to the byte."""
    form = path.suffix.removeprefix(".")
    # A date or a library version would change the bytes.
    nothing = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing(), atomic_write(path, "wb") as file:
        figure.savefig(file, format=form, dpi=200, metadata={**nothing[form], "Title": title})


def draw_all(runs: Sequence[Run], out: Path, form: str) -> tuple[list[Path], list[str]]:
    """Draw each figure that the runs have in each theme; return the files and what is missing."""
    looks = row_looks(runs)
    paths: list[Path] = []
    lacking: list[str] = []
    for name, kind in KINDS.items():
        if not (panels := kind.panels(runs)):
            lacking.append(f"figure {name} is left out: {kind.needs}")
            continue
        for theme in THEMES:
            ending = "" if theme is LIGHT else f"-{theme.name}"
            paths.append(out / f"{name}{ending}.{form}")
            write(draw(panels, looks, theme), paths[-1], title=kind.title)
    return paths, lacking


def draw(panels: Sequence[Panel], looks: Mapping[str, Look], theme: Theme) -> "Figure":
    """Draw panels on one sheet, one plot per facet, above a shared legend."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    plots = [(panel, facet) for panel in panels for facet in panel.facets or ("",)]
    several = max(len(panel.facets) for panel in panels)
    columns = min(several if several > 1 else len(panels), 3)
    rows = -(-len(plots) // columns)
    with drawing(theme):
        figure = Figure(layout="constrained")
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
        handles: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        # The rows come first, in their order, then the meaning of the marks.
        marks = [label for label in (_BAND, "divergence") if label in handles]
        labels = [label for label in handles if label not in marks] + marks
        beside = int(columns * _WIDTH * _LETTERS / (max(map(len, labels)) + 8))
        beside = max(1, min(len(labels), beside))
        below = -(-len(labels) // beside) * _LEGEND_ROW + 0.1
        figure.set_size_inches(columns * _WIDTH, rows * _HEIGHT + below)
        drawn = [handles[label] for label in labels]
        legend = figure.legend(drawn, labels, loc="outside lower left", ncols=beside)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


def _draw_facet(
    axes: "Axes", panel: Panel, facet: str, looks: Mapping[str, Look], theme: Theme
) -> None:
    lines = [line for line in panel.series if line.facet == facet]
    for line in lines:
        look = looks[line.row]
        if any(n > 1 for n in line.n):
            band = {"color": theme.hues[look.hue], "alpha": 0.15, "linewidth": 0}
            axes.fill_between(line.x, line.low, line.high, **band, label=_BAND)
        # Lines start their marks at different offsets, so that the marks of coinciding lines
        # stay apart.
        every = (0.05 * MARKS.index(look.mark), 0.3)
        axes.plot(line.x, line.mean, **_style(look, theme), markevery=every)
        for _, step, value in line.lost:  # a cross, at the top if the loss is unknown
            where = axes.get_xaxis_transform() if value is None else axes.transData
            cross = {"color": theme.hues[look.hue], "marker": "X", "markersize": 7.0}
            style = {"linestyle": "none", "zorder": 4, "transform": where, "clip_on": False}
            y = 1.0 if value is None else value
            axes.plot([step], [y], **cross, **style, label="divergence")
    axes.set_ylabel(panel.unit)
    if panel.tick_names:  # with many layers, label every second or third
        xs = sorted({x for line in lines for x in line.x})
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
        "label": one_line(look.name),
        "color": theme.hues[look.hue],
        "linestyle": _STROKES[look.dashes],
        "marker": _MARKS[look.mark],
    }
