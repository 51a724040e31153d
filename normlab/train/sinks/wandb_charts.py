"""Decides which charts a run leaves at W&B beside its rows: by layer from the record, and its loss.

Figures over training need no chart: they are rows, which W&B draws by itself. A chart here is plain
data for one of W&B's own presets, so that the charts of several runs are laid over each other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normlab.records.depth import by_place
from normlab.records.record import RunRecord
from normlab.records.rows import series, spike_steps

_BY_LAYER = {
    "gradient_by_layer": ("stability/gradients/norm", "Gradient norm by layer"),
    "tid_mean_by_layer": ("stability/tid/mean", "TID of the mean by layer"),
    "tid_var_by_layer": ("stability/tid/var", "TID of the variance by layer"),
    "residual_by_layer": ("stability/residual/rms", "Residual stream (rms) by layer"),
}
_TRAIN, _VALID = "train/loss", "valid/loss"
_MOST = 2000  # points of a line; the tables of W&B's charts hold 10,000


@dataclass(frozen=True)
class Chart:
    """A chart: its preset at W&B, its table, which column is which field of the preset, texts."""

    preset: str
    columns: list[str | int]
    rows: list[Any]
    fields: dict[str, str]
    texts: dict[str, str]


def charts(record: RunRecord, rows: Sequence[Mapping[str, Any]]) -> dict[str, Chart]:
    """Return the charts of a run by name, those that it has figures for."""
    found = {
        name: _bars(title, by_place(record.stability, figure))
        for name, (figure, title) in _BY_LAYER.items()
    }
    found["loss"] = _loss(rows, record.loss_unit)
    return {name: chart for name, chart in found.items() if chart.rows}


def _bars(title: str, places: Mapping[str, float]) -> Chart:
    # The number before the name keeps the order of depth where bars are sorted by their names.
    rows = [
        [f"{number:02d} {place}", value]
        for number, (place, value) in enumerate(places.items())
        if math.isfinite(value)
    ]
    return Chart(
        preset="wandb/bar/v0",
        columns=["place", "value"],
        rows=rows,
        fields={"label": "place", "value": "value"},
        texts={"title": title},
    )


def _loss(rows: Sequence[Mapping[str, Any]], unit: str) -> Chart:
    """Draw training and validation loss, and the spikes as a comb whose teeth reach the loss."""
    training, validation = _finite(rows, _TRAIN), _finite(rows, _VALID)
    lines = {"training": _thinned(training), "validation": _thinned(validation)}
    losses = dict(training)
    spikes = [step for step in spike_steps(rows) if step in losses]
    if spikes:
        floor = min(losses.values())
        teeth = [(floor, losses[step], floor) for step in spikes]
        lines["spikes"] = [
            (step, at) for step, tooth in zip(spikes, teeth, strict=True) for at in tooth
        ]
    return Chart(
        preset="wandb/lineseries/v0",
        columns=["step", "line", "loss"],
        rows=[[step, name, loss] for name, line in lines.items() for step, loss in line],
        fields={"step": "step", "lineKey": "line", "lineVal": "loss"},
        texts={"title": f"Loss with spikes ({unit})", "xname": "training step"},
    )


def _finite(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    return [(step, value) for step, value in series(rows, name) if math.isfinite(value)]


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return points[:: max(1, -(-len(points) // _MOST))]
