"""The figure `over_training`: what probes saw in the course of a run, a small panel a figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from normlab.records.rows import series
from normlab.reports.figures.panels import End, label, name_lines, panels
from normlab.reports.figures.runs import Experiment, Run, last_step
from normlab.reports.figures.seeds import draw_curves, finite
from normlab.reports.figures.style import Theme, drawing, line, scale_up_axis, steps_axis

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


@dataclass(frozen=True)
class Panel:
    """A figure of the rows: its name, its title, the unit at its axis, and its probe."""

    figure: str
    title: str
    unit: str

    @property
    def probe(self) -> str | None:
        """Return the probe that gives the figure, None where the trainer itself does."""
        parts = self.figure.split("/")
        return parts[1] if parts[0] == "stability" else None


PANELS = (
    Panel("train/grad_norm", "Gradient norm", "norm before clipping"),
    Panel("stability/updates/ratio", "Update size", "|change| / |weights|"),
    Panel("stability/tid/mean", "TID, mean", "relative distance"),
    Panel("stability/tid/var", "TID, variance", "relative distance"),
    Panel("stability/fluctuation/mean", "Fluctuation, mean", "distance per feature"),
    Panel("stability/fluctuation/var", "Fluctuation, variance", "distance per feature"),
    Panel("stability/statistics_gradient/mean", "Gradient of the mean", "norm per feature"),
    Panel("stability/statistics_gradient/var", "Gradient of the variance", "norm per feature"),
    Panel("stability/activations/var", "Activation variance", "activation squared"),
    Panel("stability/activations/largest", "Largest activation", "|activation|"),
    Panel("stability/residual/growth", "Residual growth", "last rms / first rms"),
    Panel("stability/attention/entropy", "Attention entropy", "share of the highest"),
)


def has_panel(run: Run, panel: Panel) -> bool:
    """Tell whether a run's rows have a figure, finite at one step at least."""
    return bool(finite(series(run.rows, panel.figure)))


def over_training(experiments: Sequence[Experiment], theme: Theme) -> "matplotlib.figure.Figure":
    """Draw those of `PANELS` that a run has over the training steps, one line an experiment."""
    runs = [run for experiment in experiments for run in experiment.runs]
    shown = [panel for panel in PANELS if any(has_panel(run, panel) for run in runs)]
    labels = [label(experiment.name) for experiment in experiments]
    foot = "bold: mean of the seeds still running; faint: seeds"
    with drawing():
        figure, all_axes = panels(
            theme,
            [panel.title for panel in shown],
            labels,
            columns=3,
            width=2.0,
            height=1.4,
            foot=foot if len(runs) > len(experiments) else "",
        )
        for panel, axes in zip(shown, all_axes, strict=True):
            _draw(axes, experiments, panel, theme)
    return figure


def _draw(
    axes: "matplotlib.axes.Axes", experiments: Sequence[Experiment], panel: Panel, theme: Theme
) -> None:
    ends: list[End] = []
    values: list[float] = []
    for experiment in experiments:
        look = line(theme, experiment.number)
        curves = [finite(series(run.rows, panel.figure)) for run in experiment.runs]
        values += [value for curve in curves for value in curve.values()]
        if end := draw_curves(axes, curves, look, number=experiment.number):
            ends.append(End(label(experiment.name), look, end))
    steps_axis(axes, last_step(experiments))
    axes.set_ylabel(panel.unit)
    scale_up_axis(axes, values)
    name_lines(axes, theme, ends)
