"""Figures for papers, drawn with matplotlib from the content of charts (`panel.py`)."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.records.files import atomic_write
from normlab.records.labels import one_line
from normlab.reports.figures.fonts import font_families, texts_without_glyphs
from normlab.reports.figures.line_styles import DASHES, LIGHT, MARKS, LineStyle, Theme
from normlab.reports.figures.panel import STEP, Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STROKES: dict[str, Any] = dict(
    zip(DASHES, ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5))), strict=True)
)
_MARKS: dict[str, str] = dict(zip(MARKS, "os^DvP", strict=True))
_WIDTH, _HEIGHT, _LEGEND_ROW = 3.2, 2.5, 0.17  # inches per plot and per legend row
_LETTERS = 15  # legend letters per inch
_NAMES_FIT = 24  # with more ticks, a panel does not label all of them
_BAND, _DIVERGENCE = "lowest to highest seed", "divergence"
_RC: dict[Any, Any] = {
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
    "legend.handlelength": 3.0,  # long enough to tell dashes from solid lines
    "lines.linewidth": 1.3,
    "lines.markersize": 3.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "pdf.fonttype": 42,  # TrueType: journals refuse matplotlib's default, Type 3
    "svg.hashsalt": "normlab",
}


def draw(panels: Sequence[Panel], styles: Mapping[str, LineStyle], theme: Theme) -> "Figure":
    """Draw panels in one figure, one plot per facet, above a shared legend."""
    from matplotlib.figure import Figure

    plots = [(panel, facet) for panel in panels for facet in panel.facets or ("",)]
    most_facets = max(len(panel.facets) for panel in panels)
    columns = min(most_facets if most_facets > 1 else len(panels), 3)
    rows = -(-len(plots) // columns)
    with drawing(theme):
        figure = Figure(layout="constrained")
        shared: dict[str, Axes] = {}  # the facets of a panel share their vertical axis
        for number, (panel, facet) in enumerate(plots, 1):
            axes = figure.add_subplot(rows, columns, number, sharey=shared.get(panel.name))
            _set_titles(axes, panel, facet, is_only_plot=len(plots) == 1)
            if shared.setdefault(panel.name, axes) is axes and panel.logarithmic:
                _make_logarithmic(axes)
            _draw_facet(axes, panel, facet, styles, theme)
        legend_rows = _add_legend(figure, panels, columns)
        below = legend_rows * _LEGEND_ROW + 0.1
        figure.set_size_inches(columns * _WIDTH, rows * _HEIGHT + below)
    return figure


def _set_titles(axes: "Axes", panel: Panel, facet: str, *, is_only_plot: bool) -> None:
    """Set the plot's title and the label of its vertical axis.

    A figure's only plot has no title, because the caption of the figure has it.
    """
    if is_only_plot:
        axes.set_ylabel(panel.axis_title)
        return
    title = ", ".join(filter(None, (panel.title, facet)))
    axes.set_title(one_line(title), parse_math=False)
    axes.set_ylabel(panel.unit)


def _make_logarithmic(axes: "Axes") -> None:
    from matplotlib.ticker import LogFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter())


def _add_legend(figure: "Figure", panels: Sequence[Panel], columns: int) -> int:
    """Add one legend for all plots, and return its number of lines.

    The rows come first, then the meaning of bands and crosses.
    """
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    marks = [label for label in (_BAND, _DIVERGENCE) if label in handles]
    labels = [label for label in handles if label not in marks] + marks
    fit = int(columns * _WIDTH * _LETTERS / (max(map(len, labels)) + 8))
    across = max(1, min(len(labels), fit))
    seeds = set[int]().union(*(panel.seeds for panel in panels))
    band = f"lowest to highest of {min(seeds)} seeds" if len(seeds) == 1 else _BAND
    texts = [band if label == _BAND else label for label in labels]
    drawn = [handles[label] for label in labels]
    legend = figure.legend(drawn, texts, loc="outside lower left", ncols=across)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return -(-len(labels) // across)


def _draw_facet(
    axes: "Axes", panel: Panel, facet: str, styles: Mapping[str, LineStyle], theme: Theme
) -> None:
    lines = [line for line in panel.series if line.facet == facet]
    for line in lines:
        _draw_line(axes, panel, line, styles[line.row], theme)
    _set_x_axis(axes, panel, lines)


def _draw_line(axes: "Axes", panel: Panel, line: Series, style: LineStyle, theme: Theme) -> None:
    """Draw a row's line with its band, and a cross where a seed diverged."""
    colour = theme.hues[style.hue]
    if any(n > 1 for n in line.n):
        band = {"color": colour, "alpha": 0.15, "linewidth": 0}
        if panel.joined and len(line.x) > 1:
            axes.fill_between(line.x, line.low, line.high, **band, label=_BAND)
        else:  # a band of zero width would be invisible
            band |= {"alpha": 0.5, "linewidth": 1.2}
            axes.vlines(line.x, line.low, line.high, **band, label=_BAND)
    # Each row's first marker is shifted, so that the markers of coinciding lines do not overlap.
    every = (0.05 * MARKS.index(style.mark), 0.3) if panel.across == STEP else None
    axes.plot(
        line.x,
        line.mean,
        linestyle=_STROKES[style.dashes] if panel.joined else "none",
        marker=_MARKS[style.mark],
        markevery=every,
        color=colour,
        label=one_line(style.name),
    )
    for _, x, value in line.lost:  # draw a cross, at the top if the value is unknown
        where = axes.get_xaxis_transform() if value is None else axes.transData
        cross = {"color": colour, "marker": "X", "markersize": 7.0}
        shown = {"linestyle": "none", "zorder": 4, "transform": where, "clip_on": False}
        y = 1.0 if value is None else value
        axes.plot([x], [y], **cross, **shown, label=_DIVERGENCE)


def _set_x_axis(axes: "Axes", panel: Panel, lines: Sequence[Series]) -> None:
    """Set the scale, ticks and label of the horizontal axis: words, layers, steps or numbers."""
    if not panel.joined:
        axes.set_xlim(min(panel.ticks) - 0.5, max(panel.ticks) + 0.5)
        axes.set_xticks(panel.ticks, [*map(one_line, panel.tick_names)])
        axes.set_xlabel(panel.across)
        return
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
        return
    if panel.logarithmic_across:
        axes.set_xscale("log")
        axes.minorticks_off()
    labels = [f"{x:,g}" if x < 1e6 else f"{x:.3g}" for x in panel.ticks]
    axes.set_xticks(panel.ticks, labels)


def write(figure: "Figure", path: Path, *, title: str) -> tuple[str, ...]:
    """Write a figure as `.svg`, `.pdf` or `.png`, by the path's suffix, in reproducible bytes.

    Returns the texts that have a character without a glyph, which matplotlib draws as boxes.
    """
    form = path.suffix.removeprefix(".")
    # A date or a library version would change the bytes.
    nothing = {
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing(), warnings.catch_warnings(), atomic_write(path, "wb") as file:
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # once per character
        figure.savefig(file, format=form, dpi=200, metadata={**nothing[form], "Title": title})
        return texts_without_glyphs(figure)


@contextmanager
def drawing(theme: Theme = LIGHT) -> Iterator[None]:
    """Within the context, use normlab's matplotlib settings instead of the user's."""
    import matplotlib

    quiet = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    colours: dict[Any, Any] = {
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), theme.paper),
        **dict.fromkeys(quiet, theme.quiet),
        **dict.fromkeys(("axes.titlecolor", "text.color"), theme.ink),
        "grid.color": theme.grid,
        "font.family": font_families(),
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(colours | _RC)
        yield
