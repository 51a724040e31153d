"""The charts of runs: curves over training, probes, scores over a numeric axis, and by layer.

Pages draw them with `templates/charts.js`, `drawing.py` as figures for papers.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from normlab.records.store import series
from normlab.reports.axes import by_axis
from normlab.reports.chart_data import LOG_FROM, LineStyle, Panel, Series, joined, styles_of
from normlab.reports.headings import heading, point_name
from normlab.reports.runs import Run, by_setting
from normlab.reports.table import ScoreTable

TRAIN, VALID = "train/loss", "valid/loss"
_LAST = 10**6
_RANKS = {
    "encoder": 0,
    "decoder": 1,
    "output": 2,
    "embedding": -1,
    "final": _LAST,
    "self": 0,
    "cross": 1,
    "ffn": 2,
    "ffn_inner": 3,
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
_OVER_TRAINING = tuple(name for name in _TITLES if name not in (TRAIN, VALID))
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
    logged = sorted({name for run in runs for row in run.curve for name in row})

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
            {float(step): y for step, y in series(run.curve, name) if math.isfinite(y)}
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


class FigureKind(NamedTuple):
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
    "loss": FigureKind("Training and validation loss", (TRAIN, VALID)),
    "gradient_by_layer": FigureKind("Gradient norm by layer", ("stability/gradients/norm",), True),
    "tid_by_layer": FigureKind("TID by layer", ("stability/tid/mean", "stability/tid/var"), True),
    "residual_by_layer": FigureKind("Residual stream", ("stability/residual/rms",), True),
    "over_training": FigureKind("Stability over training", _OVER_TRAINING),
}
"""The figures that `normlab report --figures` and `Records.plot` draw."""


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
