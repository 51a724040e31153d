"""The figures for papers of a table's runs: which there are, and the panels of each."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from normlab.metrics.score_text import heading
from normlab.reports.figures.chart_data import Panel
from normlab.reports.figures.layer_charts import layer_chart
from normlab.reports.figures.score_charts import by_axis
from normlab.reports.figures.training_charts import OVER_TRAINING, TRAIN, VALID, training_chart
from normlab.reports.runs import Run
from normlab.reports.tables.table import ScoreTable


class FigureKind(NamedTuple):
    """A kind of figure: its title, its metrics, and whether they are drawn by layer."""

    title: str
    metrics: Sequence[str]
    by_layer: bool = False

    def panels(self, runs: Sequence[Run]) -> tuple[Panel, ...]:
        chart = layer_chart if self.by_layer else training_chart
        panels = [chart(runs, name) for name in self.metrics]
        return tuple(panel for panel in panels if panel.series)


LACK = "no run has the values; figures by layer and over training need probe=full"
KINDS = {
    "loss": FigureKind("Training and validation loss", (TRAIN, VALID)),
    "gradient_by_layer": FigureKind("Gradient norm by layer", ("stability/gradients/norm",), True),
    "tid_by_layer": FigureKind("TID by layer", ("stability/tid/mean", "stability/tid/var"), True),
    "residual_by_layer": FigureKind("Residual stream", ("stability/residual/rms",), True),
    "over_training": FigureKind("Stability over training", OVER_TRAINING),
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
