"""The figure `loss`: training and validation loss, with loss spikes and divergences marked."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from normlab.records.record import RunRecord
from normlab.records.rows import series, spike_steps
from normlab.reports.figures.panels import End, Label, label, name_lines, panels
from normlab.reports.figures.runs import Experiment, Run, last_step
from normlab.reports.figures.seeds import draw_curves, finite
from normlab.reports.figures.style import Theme, drawing, line, scale_up_axis, steps_axis

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

TRAIN, VALID = "train/loss", "valid/loss"
LOG_FROM = 3.0  # early: what matters happens after the first steep fall
TITLES = {TRAIN: "Training loss", VALID: "Validation loss"}


def has_loss(run: Run) -> bool:
    """Tell whether a run has something to draw: a finite loss, or a divergence before the first."""
    return _diverged(run) or any(finite(series(run.rows, name)) for name in TITLES)


def loss_unit(records: Iterable[RunRecord]) -> str:
    """Return what losses of runs are in: nats of what all count, or nats alone."""
    units = {record.loss_unit for record in records}
    return units.pop() if len(units) == 1 else "nats"


def loss(experiments: Sequence[Experiment], theme: Theme) -> "matplotlib.figure.Figure":
    """Draw the losses over training, one line an experiment.

    A ring is a row in which the count of loss spikes has grown. A cross is the step of a
    divergence, at the last loss before it, at the top where there is none.
    """
    shown = [name for name in TITLES if name == TRAIN or _values(experiments, name)]
    unit = loss_unit(record for experiment in experiments for record in experiment.records)
    names = [label(experiment.name, _how_it_ended(experiment)) for experiment in experiments]
    with drawing():
        figure, all_axes = panels(
            theme,
            [TITLES[name] for name in shown],
            names,
            columns=2,
            height=2.3,
            foot=_foot(experiments),
        )
        for name, axes in zip(shown, all_axes, strict=True):
            ends: list[End] = []
            for experiment, text in zip(experiments, names, strict=True):
                look = line(theme, experiment.number)
                curves = [finite(series(run.rows, name)) for run in experiment.runs]
                end = draw_curves(axes, curves, look, number=experiment.number)
                if name == TRAIN:
                    ends.append(End(text, look, end))
                    for run in experiment.runs:
                        _mark(axes, theme, run, look.hue)
                elif end:
                    ends.append(End(Label(text.name, ()), look, end))
            steps_axis(axes, last_step(experiments))
            axes.set_ylabel(unit)
            scale_up_axis(axes, _values(experiments, name), log_from=LOG_FROM)
            name_lines(axes, theme, ends)
    return figure


def _values(experiments: Sequence[Experiment], name: str) -> list[float]:
    return [
        value
        for experiment in experiments
        for run in experiment.runs
        for value in finite(series(run.rows, name)).values()
    ]


def _mark(axes: "matplotlib.axes.Axes", theme: Theme, run: Run, hue: str) -> None:
    losses = finite(series(run.rows, TRAIN))
    spikes = [step for step in spike_steps(run.rows) if step in losses]
    if spikes:
        axes.plot(
            spikes,
            [losses[step] for step in spikes],
            linestyle="none",
            marker="o",
            markersize=7.0,
            markerfacecolor="none",
            markeredgecolor=hue,
            markeredgewidth=1.1,
            label="spike",
        )
    if _diverged(run):
        assert run.record is not None
        axes.plot(
            [float(run.record.outcome.step)],
            [list(losses.values())[-1] if losses else 1.0],
            transform=axes.transData if losses else axes.get_xaxis_transform(),
            clip_on=False,
            linestyle="none",
            marker="X",
            markersize=7.5,
            markerfacecolor=hue,
            markeredgecolor=theme.paper,
            markeredgewidth=0.7,
            zorder=4,
            label="divergence",
        )


def _diverged(run: Run) -> bool:
    return run.record is not None and run.record.outcome.status == "diverged"


def _how_it_ended(experiment: Experiment) -> str:
    """Say of divergences how many, when and where: the first layer that was not finite."""
    ended = [record.outcome for record in experiment.records]
    diverged = [outcome for outcome in ended if outcome.status == "diverged"]
    if not diverged:
        return ""
    counted = Counter(outcome.layer for outcome in diverged if outcome.layer)
    where = f" in {', '.join(sorted(counted))}" if counted else ""
    where = where.replace(".layers.", ".")
    if len(experiment.runs) == 1:
        return f"diverged at step {diverged[0].step:,}{where}"
    return f"{len(diverged)} of {len(experiment.runs)} diverged{where}"


def _foot(experiments: Sequence[Experiment]) -> str:
    runs = [run for experiment in experiments for run in experiment.runs]
    parts = []
    if any(len(experiment.runs) > 1 for experiment in experiments):
        parts.append("bold: mean of the seeds still running; faint: seeds")
    if any(spike_steps(run.rows) for run in runs):
        parts.append("ring: loss spike")
    if any(_diverged(run) for run in runs):
        parts.append("cross: divergence")
    return "   ".join(parts)
