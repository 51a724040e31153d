"""Measures what a norm computes on the articles' tensor: groups, statistics and stored values.

The statistics of a group are computed twice: directly, as the mean and variance of its values, and
from the norm's output. Within a group, the output is a linear function of the input. The input at
which it is 0 is the center that the norm subtracts, and the inverse of its slope is the divisor.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args, get_type_hints

from torch import Tensor

from normlab.config.registry import Option
from normlab.inspection.examples.articles import LAST_IS_PADDING, example_tensor
from normlab.inspection.norm.example_norm import HALF_WAY, ExampleNorm, example_norm
from normlab.inspection.norm.norm_calls import run, run_copy, trained_on
from normlab.inspection.norm.padding_effect import padding_moves
from normlab.inspection.norm.pooling import (
    CellIndex,
    Dependence,
    Influence,
    dependence,
    dependence_in_eval,
    distinct_groups,
    influences,
    pooled_cells,
)
from normlab.norms.base import Norm
from normlab.norms.make import make_norm

FULL_WIDTH = 512  # the width at which parameters and buffers are counted
_CLOSE = 1e-6


class FittedLine(NamedTuple):
    """The straight line `(x - center) / divisor`."""

    center: float
    divisor: float


@dataclass(frozen=True)
class WorkedGroup:
    """Cells that share statistics, with their values and the mean and variance of the values.

    `line` is the function that a new norm applies to the values in training, and `line_in_eval` the
    one in eval, after training on this batch only. It is None if it is not a straight line.
    """

    cells: list[CellIndex]
    values: list[float]
    mean: float
    var: float
    line: FittedLine | None
    line_in_eval: FittedLine | None


class Stored(NamedTuple):
    """The parameters of a norm, and the buffers that are saved with it, keyed by name."""

    parameters: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]


class WorkedExample(NamedTuple):
    """What was measured of a norm on the articles' tensor.

    Attributes:
        shown: the option and the settings of the norm.
        cells: which cells share statistics.
        groups: the distinct groups of such cells.
        influences: the values that outputs depend on in training.
        influences_in_eval: the values that outputs depend on in eval.
        pooled_padding: the values of the setting `padding` with which padding changes the outputs
            of real tokens. It is [""] if padding changes them in a norm without this setting.
        stored: the norm's parameters and saved buffers at full width.
    """

    shown: ExampleNorm
    norm: Norm
    cells: Dependence
    groups: list[WorkedGroup]
    influences: list[Influence]
    influences_in_eval: list[Influence]
    pooled_padding: list[str]
    stored: Stored


def worked_example(option: Option) -> WorkedExample:
    """Measure an option of `configs/norm` on the articles' tensor.

    Errors that the norm raises on that tensor propagate.
    """
    shown = at_shown_step(example_norm(option))
    norm = shown.make()
    dependences = dependence(norm)
    cells = pooled_cells(norm, dependences)
    return WorkedExample(
        shown,
        norm,
        cells,
        worked_groups(norm, cells),
        influences(dependences),
        influences(dependence_in_eval(norm)),
        settings_that_pool_padding(shown, norm),
        stored(make_norm(option.name, FULL_WIDTH)),
    )


def at_shown_step(example: ExampleNorm, **values: Any) -> ExampleNorm:
    """Return an example norm at the step at which it is shown. `values` override its settings.

    This is half-way through a run for a norm that does not pool over samples at first.
    """
    norm = example.make(**values)
    if norm.ramps and "other samples" not in influences(dependence(norm)):
        return replace(example, step=HALF_WAY)
    return example


def settings_that_pool_padding(shown: ExampleNorm, norm: Norm) -> list[str]:
    """Return the values of the setting `padding` with which padding changes real tokens' outputs.

    For a norm without this setting, the value is "".
    """
    norms = {"": norm}
    if "padding" in shown.settings:
        values = get_args(get_type_hints(type(norm).__init__)["padding"])
        norms = {value: shown.make(padding=value) for value in values}
    x = example_tensor()
    return [value for value, each in norms.items() if padding_moves(each, x, LAST_IS_PADDING)]


def stored(norm: Norm) -> Stored:
    """Return the parameters of a norm, and the buffers that are saved with it."""
    buffers = {name: x for name, x in norm.named_buffers() if name in norm.state_dict()}
    return Stored(dict(norm.named_parameters()), buffers)


def worked_groups(norm: Norm, cells: Dependence) -> list[WorkedGroup]:
    """Return the distinct groups of cells, with what a new norm computes from their values."""
    x = example_tensor()
    y, y_in_eval = run_copy(norm, x), run(trained_on(norm, x), x)
    worked = []
    for group in distinct_groups(cells):
        values, ys, ys_in_eval = (
            [float(table[cell]) for cell in group] for table in (x, y, y_in_eval)
        )
        mean = math.fsum(values) / len(values)
        var = math.fsum((value - mean) ** 2 for value in values) / len(values)
        line, line_in_eval = line_through(values, ys), line_through(values, ys_in_eval)
        worked.append(WorkedGroup(group, values, mean, var, line, line_in_eval))
    return worked


def line_through(xs: Sequence[float], ys: Sequence[float]) -> FittedLine | None:
    """Return the straight line through all points, or None if there is none."""
    low, high = xs.index(min(xs)), xs.index(max(xs))
    if xs[low] == xs[high] or ys[low] == ys[high]:
        return None
    divisor = (xs[high] - xs[low]) / (ys[high] - ys[low])
    center = xs[low] - ys[low] * divisor
    on_it = [(x - center) / divisor for x in xs]
    fits = all(math.isclose(a, b, abs_tol=_CLOSE) for a, b in zip(on_it, ys, strict=True))
    return FittedLine(center, divisor) if fits else None
