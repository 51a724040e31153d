"""The question of outlier features, dead channels and massive activations."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.slow_questions import NOTHING, layer_outputs, look_above
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import percent
from normlab.probes.activations import MASSIVE, TIMES, describe

OUTLIER_RATIO = 6.0  # a feature's RMS relative to the RMS of all features
FEWEST_POSITIONS = 8  # positions needed before a channel can be called dead


@question("channels", of="module", slow=True)
@torch.no_grad()
def channels(examination: Examination) -> Finding:
    """Do layers output outlier features, dead channels, or massive activations?

    Each layer's output for the longest row is described by the share of features whose RMS exceeds
    6 times the RMS of all features (outliers), the share of features that are constant over
    positions (dead), and the largest magnitude divided by the median magnitude. A value is massive
    if it is above 100 and this ratio is above 1000 (Sun et al. 2024).
    """
    length = examination.example.length
    layers = [_activations(path, y, length) for path, y in layer_outputs(examination).items()]
    if not layers:
        return NOTHING
    worst = max(layers, key=lambda layer: layer.over_median)
    table = AnswerTable(("layer", "outliers", "dead", "largest", "times the median"), layers)
    limit = TIMES if worst.largest > MASSIVE else torch.inf
    return look_above(_answer(layers, worst), worst.over_median, limit, table)


class LayerActivations(NamedTuple):
    """The shares of outlier features and dead channels in a layer's output, and its largest value.

    `largest` is a magnitude, and `over_median` is its ratio to the median magnitude.
    """

    layer: str
    outliers: float
    dead: float
    largest: float
    over_median: float


def _activations(path: str, y: Tensor, length: int) -> LayerActivations:
    """Describe a layer's output for a row of `length` positions."""
    channels_first = y.ndim == 4 or (y.ndim == 3 and y.shape[2] == length != y.shape[1])
    x = (y.flatten(2).mT if channels_first else y.reshape(1, -1, y.shape[-1])).double()
    real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    described = describe(x, real, threshold=OUTLIER_RATIO)
    dead = (x == x[:, :1]).all(1).double().mean() * (x.shape[1] >= FEWEST_POSITIONS)
    numbers = (described["outliers"], dead, described["largest"], described["over_median"])
    return LayerActivations(path, *map(float, numbers))


def _answer(layers: Sequence[LayerActivations], worst: LayerActivations) -> str:
    outliers = percent(max(layer.outliers for layer in layers))
    dead = percent(max(layer.dead for layer in layers))
    return (
        f"the largest magnitude is {worst.largest:.3g}, {worst.over_median:.3g} times the median, "
        f"in {worst.layer}; in the worst layer {outliers} of features are outliers, {dead} of "
        "channels dead"
    )
