"""The charts of runs: curves over training, probes, scores over a numeric axis, and by layer.

Pages draw them with `templates/charts.js`; figures for papers are drawn here with matplotlib. Lines
differ in hue, dashes and marker, so that they are distinguishable in grayscale print and for
colour-blind readers (hues of Okabe and Ito 2008, "Color Universal Design", lightened to the same
contrast for dark pages).
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from normlab.records.files import atomic_write
from normlab.records.labels import one_line
from normlab.records.store import series
from normlab.reports.chart_data import (
    DASHES,
    LIGHT,
    LOG_FROM,
    MARKS,
    STEP,
    LineStyle,
    Panel,
    Series,
    Theme,
    joined,
    styles_of,
)
from normlab.reports.headings import heading, point_name
from normlab.reports.runs import Run, by_setting
from normlab.reports.sweep import by_axis
from normlab.reports.table import ScoreTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRAIN, VALID = "train/loss", "valid/loss"
_LAST = 10**6
_RANKS = {
    **{"encoder": 0, "decoder": 1, "output": 2, "embedding": -1, "final": _LAST},
    **{"self": 0, "cross": 1, "ffn": 2, "ffn_inner": 3},
}
"""The order in which parts of a model are drawn, in addition to layer numbers."""
_LOSS_LOG_FROM = 3.0  # low, because differences appear only after the first steep fall
_UNSHOWN = "train/tokens_per_second"  # depends on the machine
_TITLES = {
    TRAIN: ("Training loss", "nats"),
    VALID: ("Validation loss", "nats"),
    "train/grad_norm": ("Gradient norm", "norm before clipping"),
    "stability/updates/ratio": ("Update size", "|change| / |weights|"),
    "stability/tid/mean": ("TID, mean", "relative distance"),
    "stability/tid/var": ("TID, variance", "relative distance"),
    "stability/fluctuation/mean": ("Fluctuation, mean", "distance per feature"),
    "stability/fluctuation/var": ("Fluctuation, variance", "distance per feature"),
    "stability/statistics_gradient/mean": ("Gradient of the mean", "norm per feature"),
    "stability/statistics_gradient/var": ("Gradient of the variance", "norm per feature"),
    "stability/activations/var": ("Activation variance", "activation squared"),
    "stability/activations/largest": ("Largest activation", "|activation|"),
    "stability/residual/growth": ("Residual growth", "last rms / first rms"),
    "stability/attention/entropy": ("Attention entropy", "share of the highest"),
}
_OVER_TRAINING = tuple(_TITLES)[2:]
_BY_LAYER = {
    "stability/gradients/norm": ("Gradient norm", "norm before clipping"),
    "stability/tid/mean": ("TID of the mean", "relative distance"),
    "stability/tid/var": ("TID of the variance", "relative distance"),
    "stability/residual/rms": ("Residual stream", "root mean square"),
}


def row_styles(runs: Sequence[Run], rows: Iterable[str] = ()) -> dict[str, LineStyle]:
    """Return the line style of each row, chosen by the norm of its first run with a config."""
    norms = {run.key.row: run.norm for run in reversed(runs) if run.settings}
    names = rows or dict.fromkeys(run.key.row for run in runs)
    return styles_of({row: norms.get(row, row) for row in names})


def over_training(columns: Sequence[str], runs: Sequence[Run]) -> dict[str, list[Panel]]:
    """Return curves of losses and scores (`learning`), and of gradients and probes (`stability`).

    Charts of the table's own columns and the most informative probes come first.
    """
    logged = sorted({name for run in runs for row in run.rows for name in row})

    def charts(first: Iterable[str], *others: tuple[str, int]) -> list[Panel]:
        """Return charts of the `first` metrics, then of all matching a (prefix, slashes) pair."""
        rest = (
            name
            for start, slashes in others
            for name in logged
            if name.startswith(start) and name.count("/") == slashes
            if name not in (TRAIN, VALID, _UNSHOWN)
        )
        curves = (_curves(runs, name) for name in dict.fromkeys([*first, *rest]))
        # A single point is not a curve.
        return [p for p in curves if any(len(line.x) > 1 or line.lost for line in p.series)]

    validated = [f"valid/{column.partition('/')[2]}" for column in columns]
    return {
        "learning": charts([TRAIN, VALID, *validated], ("valid/", 1)),
        "stability": charts(_OVER_TRAINING, ("stability/", 2), ("train/", 1)),
    }


def _curves(runs: Iterable[Run], name: str) -> Panel:
    """Return the chart of a metric over training; the training loss also marks divergences."""
    lines: list[Series] = []
    for (row, at), members in by_setting(runs).items():
        curves = [
            {float(step): y for step, y in series(run.rows, name) if math.isfinite(y)}
            for run in members
        ]
        line = Series.of_seeds(row, point_name(at), at, curves)
        lost = [
            (run.key.seed, run.record.outcome.step, [*curve.values(), None][len(curve) - 1])
            for run, curve in zip(members, curves, strict=True)
            if run.record is not None and run.outcome == "diverged" and name == TRAIN
        ]
        lines.append(replace(line, lost=tuple(lost)))
    title, unit = _TITLES.get(name, (name, ""))
    falls = any(word in name for word in ("loss", "nll", "perplexity"))
    log_from = LOG_FROM if falls or not name.startswith("valid/") else None
    if name in (TRAIN, VALID):
        units = {f"nats per {run.record.unit.removesuffix('s')}" for run in runs if run.record}
        unit = units.pop() if len(units) == 1 else "nats"
        log_from = _LOSS_LOG_FROM
    drawn = tuple(line for line in lines if line.x or line.lost)
    return Panel(name, title, unit, drawn, log_from=log_from)


class Kind(NamedTuple):
    """A kind of figure: its title, its metrics, and whether they are drawn by layer."""

    title: str
    metrics: Sequence[str]
    by_layer: bool = False

    def panels(self, runs: Sequence[Run]) -> tuple[Panel, ...]:
        panels = [
            _layers(runs, name) if self.by_layer else _curves(runs, name) for name in self.metrics
        ]
        return tuple(panel for panel in panels if panel.series)


def _layers(runs: Sequence[Run], name: str) -> Panel:
    """Return the chart of a metric by layer, with encoder and decoder as facets."""
    start, profiles = f"{name}/", dict[tuple[str, str], list[dict[str, float]]]()
    for place, members in by_setting(runs).items():
        logged = [run.record.stability.items() for run in members if run.record is not None]
        profiles[place] = [
            {
                k.removeprefix(start): y
                for k, y in metrics
                if k.startswith(start) and math.isfinite(y)
            }
            for metrics in logged
        ]
    layers = sorted(
        {key for seeds in profiles.values() for profile in seeds for key in profile}, key=_depth
    )
    lines: list[Series] = []
    for part in dict.fromkeys(map(_stack, layers)):
        positions = {float(x): key for x, key in enumerate(layers) if _stack(key) == part}
        for (row, at), seeds in profiles.items():
            curves = [
                {x: each[key] for x, key in positions.items() if key in each} for each in seeds
            ]
            lines.append(Series.of_seeds(row, joined(part, point_name(at)), at, curves))
    ticks = tuple(map(float, range(len(layers))))
    inside = [layer.partition(".")[2].replace(".", " ") or layer for layer in layers]
    names = tuple(f"layer {each}" if each.isdecimal() else each for each in inside)
    drawn = tuple(line for line in lines if line.x)
    return Panel(name, *_BY_LAYER[name], drawn, "", ticks, names)


def _stack(place: str) -> str:
    """Return the stack of a module, such as `encoder`; `output` belongs to the decoder."""
    return "decoder" if place == "output" else place.split(".")[0]


def _depth(place: str) -> tuple[list[int], str]:
    """Return a key that sorts modules in forward order: embedding, layers, final, output."""
    words = place.split(".")
    return [int(w) if w.isdecimal() else _RANKS.get(w, _LAST) for w in words], place


LACK = "no run has the values; figures by layer and over training need probe=full"
KINDS = {
    "loss": Kind("Training and validation loss", (TRAIN, VALID)),
    "gradient_by_layer": Kind("Gradient norm by layer", ("stability/gradients/norm",), True),
    "tid_by_layer": Kind("TID by layer", ("stability/tid/mean", "stability/tid/var"), True),
    "residual_by_layer": Kind("Residual stream", ("stability/residual/rms",), True),
    "over_training": Kind("Stability over training", _OVER_TRAINING),
}
"""The figures that `normlab report --figures` and `Records.plot` draw."""


_STROKES: dict[str, Any] = dict(
    zip(DASHES, ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5))), strict=True)
)
_MARKS: dict[str, str] = dict(zip(MARKS, "os^DvP", strict=True))
_WIDTH, _HEIGHT, _LEGEND_ROW = 3.2, 2.5, 0.17  # inches per plot and per legend row
_LETTERS = 15  # legend letters per inch
_NAMES_FIT = 24  # with more ticks, a panel does not label all of them
_BAND = "lowest to highest seed"
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


@contextmanager
def drawing(theme: Theme = LIGHT) -> Iterator[None]:
    """Use normlab's matplotlib settings inside the context, not the user's."""
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
    """Write a figure as `.svg`, `.pdf` or `.png`, by its suffix; the bytes are reproducible."""
    form = path.suffix.removeprefix(".")
    # A date or a library version would change the bytes.
    nothing = {
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing(), atomic_write(path, "wb") as file:
        figure.savefig(file, format=form, dpi=200, metadata={**nothing[form], "Title": title})


def figures_of(
    runs: Sequence[Run], table: ScoreTable
) -> Iterator[tuple[str, str, Sequence[Panel]]]:
    """Yield the file name, title and panels of each figure; no panels if no run has its metrics.

    A score over an axis of the table is a separate figure, such as `bleu_by_batch_size`.
    """
    for axis, panels in by_axis(table).items():
        for panel in panels:
            name = f"{heading(panel.name)} by {axis.name}".lower()
            title = f"{panel.title} by {table.axis_name(axis.key)}"
            yield re.sub(r"[^a-z0-9]+", "_", name).strip("_"), title, [panel]
    for name, kind in KINDS.items():
        yield name, kind.title, kind.panels(runs)


def draw(panels: Sequence[Panel], styles: Mapping[str, LineStyle], theme: Theme) -> "Figure":
    """Draw panels in one figure, one plot per facet, above a shared legend."""
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
            if len(plots) > 1:  # the title of a figure with one plot is its caption
                title = ", ".join(filter(None, (panel.title, facet)))
                axes.set_title(one_line(title), parse_math=False)
                axes.set_ylabel(panel.unit)
            else:
                axes.set_ylabel(panel.axis_title)
            if shared.setdefault(panel.name, axes) is axes and panel.logarithmic:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(LogFormatter())
                axes.yaxis.set_minor_formatter(LogFormatter())
            _draw_facet(axes, panel, facet, styles, theme)
        handles: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        # Legend entries of rows come first, in order, then the entries that explain marks.
        marks = [label for label in (_BAND, "divergence") if label in handles]
        labels = [label for label in handles if label not in marks] + marks
        fit = int(columns * _WIDTH * _LETTERS / (max(map(len, labels)) + 8))
        across = max(1, min(len(labels), fit))
        below = -(-len(labels) // across) * _LEGEND_ROW + 0.1
        figure.set_size_inches(columns * _WIDTH, rows * _HEIGHT + below)
        seeds = set[int]().union(*(panel.seeds for panel in panels))
        band = f"lowest to highest of {min(seeds)} seeds" if len(seeds) == 1 else _BAND
        shown = [band if label == _BAND else label for label in labels]
        drawn = [handles[label] for label in labels]
        legend = figure.legend(drawn, shown, loc="outside lower left", ncols=across)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


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
    # Different first markers, so that those of coinciding lines do not overlap.
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
    for _, step, value in line.lost:  # draw a cross, at the top if the loss is unknown
        where = axes.get_xaxis_transform() if value is None else axes.transData
        cross = {"color": colour, "marker": "X", "markersize": 7.0}
        shown = {"linestyle": "none", "zorder": 4, "transform": where, "clip_on": False}
        y = 1.0 if value is None else value
        axes.plot([step], [y], **cross, **shown, label="divergence")


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
