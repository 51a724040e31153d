"""The figures of a table's runs for papers, with their panels."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from normlab.metrics.score_text import heading
from normlab.reports.figures.layer_charts import layer_chart
from normlab.reports.figures.panel import Panel
from normlab.reports.figures.score_charts import by_axis
from normlab.reports.figures.training_charts import OVER_TRAINING, TRAIN, VALID, training_chart
from normlab.reports.runs import Run
from normlab.reports.tables.score_table import ScoreTable


class FigureKind(NamedTuple):
    """A kind of figure, with its title, its metrics, and whether they are drawn by layer."""

    title: str
    metrics: Sequence[str]
    by_layer: bool = False

    def panels(self, runs: Sequence[Run]) -> tuple[Panel, ...]:
        chart = layer_chart if self.by_layer else training_chart
        panels = [chart(runs, name) for name in self.metrics]
        return tuple(panel for panel in panels if panel.series)


LACK = (
    "no run has the values; train with the probe that measures them (probe=full for all), for at "
    "least as many steps as its `every`"
)
"""Why a figure is skipped."""
KINDS = {
    "loss": FigureKind("Training and validation loss", (TRAIN, VALID)),
    "gradient_by_layer": FigureKind("Gradient norm by layer", ("stability/gradients/norm",), True),
    "tid_by_layer": FigureKind("TID by layer", ("stability/tid/mean", "stability/tid/var"), True),
    "residual_by_layer": FigureKind("Residual stream", ("stability/residual/rms",), True),
    "over_training": FigureKind("Stability over training", OVER_TRAINING),
}
"""The figures that `normlab report --figures` and `Records.plot` draw."""


class PaperFigure(NamedTuple):
    """A figure: its file name, its title and its panels (no panels if no run has its metrics)."""

    name: str
    title: str
    panels: Sequence[Panel]


def figures_of(
    runs: Sequence[Run], table: ScoreTable, *, columns_only: bool = False
) -> Iterator[PaperFigure]:
    """Yield the figures of a table: its scores over each axis, and every kind in `KINDS`.

    With `columns_only`, yields only the figures of its columns: over the axes or, if there are no
    axes, over training.
    """
    charts = by_axis(table)
    for axis, panels in charts.items():
        for panel in panels:
            name = _file_name(f"{heading(panel.name)} by {axis.name}")
            yield PaperFigure(name, f"{panel.title} by {table.axis_name(axis.key)}", [panel])
    if not columns_only:
        yield from (PaperFigure(k, kind.title, kind.panels(runs)) for k, kind in KINDS.items())
    elif not charts:
        for column in table.columns:
            panel = training_chart(runs, f"valid/{column.partition('/')[2]}")
            name = _file_name(f"{heading(panel.name)} over training")
            yield PaperFigure(name, panel.title, [panel] if panel.series else [])


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
