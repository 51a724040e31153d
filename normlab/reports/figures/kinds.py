"""The figures of runs by their names: how each is drawn, and what a run needs to be in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from normlab.reports.figures.by_layer import Row, by_layer, has_places
from normlab.reports.figures.loss import has_loss, loss
from normlab.reports.figures.over_training import PANELS, has_panel, over_training
from normlab.reports.figures.runs import Experiment, Run
from normlab.reports.figures.style import Theme

if TYPE_CHECKING:
    import matplotlib.figure


@dataclass(frozen=True)
class Kind:
    """A figure of runs: its title, how it is drawn, and which runs have what it takes.

    `probe` is the probe that it needs, None where it needs none. Hand `draw` only experiments that
    have at least one run that `has` what it takes.
    """

    title: str
    draw: Callable[[Sequence[Experiment], Theme], "matplotlib.figure.Figure"]
    has: Callable[[Run], bool]
    probe: str | None = None

    def split(
        self, experiments: Sequence[Experiment]
    ) -> tuple[list[Experiment], dict[str, list[str]]]:
        """Return the experiments that can be drawn, and the others' names by what they lack."""
        able: list[Experiment] = []
        others: dict[str, list[str]] = {}
        for experiment in experiments:
            if any(self.has(run) for run in experiment.runs):
                able.append(experiment)
            else:
                others.setdefault(self._lack(experiment), []).append(experiment.name)
        return able, others

    def _lack(self, experiment: Experiment) -> str:
        if self.probe is None:
            return "no rows with finite figures"
        if not experiment.records:
            return "no record yet"
        if not any(run.has_probe(self.probe) for run in experiment.runs):
            return f"trained without the probe {self.probe}; probe=full has it"
        return f"the probe {self.probe} found nothing to measure in this model"


def _by_layer(title: str, probe: str, *rows: Row) -> Kind:
    return Kind(title, partial(by_layer, rows=rows), partial(has_places, rows=rows), probe)


def absent_panels(experiments: Sequence[Experiment]) -> list[str]:
    """Return the probes whose panels `over_training` lacks for want of figures."""
    runs = [run for experiment in experiments for run in experiment.runs]
    probes = {panel.probe: False for panel in PANELS if panel.probe}
    for panel in PANELS:
        if panel.probe and any(has_panel(run, panel) for run in runs):
            probes[panel.probe] = True
    return [probe for probe, found in probes.items() if not found]


KINDS = {
    "loss": Kind("Training and validation loss", loss, has_loss),
    "gradient_by_layer": _by_layer(
        "Gradient norm by layer",
        "gradients",
        Row("stability/gradients/norm", "Gradient norm", "norm before clipping"),
    ),
    "tid_by_layer": _by_layer(
        "TID by layer",
        "tid",
        Row("stability/tid/mean", "TID of the mean", "relative distance"),
        Row("stability/tid/var", "TID of the variance", "relative distance"),
    ),
    "residual_by_layer": _by_layer(
        "Residual stream by layer",
        "residual",
        Row("stability/residual/rms", "Residual stream", "root mean square"),
    ),
    "over_training": Kind(
        "Stability over training",
        over_training,
        lambda run: any(has_panel(run, panel) for panel in PANELS),
    ),
}
