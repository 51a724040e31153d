"""Finds what a norm computes by running it: `gain f(x) + bias`, with `f` from `FORMULAS`."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm

from normlab.any_model.surgery.least_squares import fitted, sums
from normlab.any_model.tracing.class_names import class_name, suggested_poolings
from normlab.any_model.tracing.norm_modules import keeps_running_statistics
from normlab.any_model.tracing.norm_trial import copied
from normlab.norms.base import Norm

FormulaKind = Literal["bn", "ln", "rms"]
FORMULAS: Mapping[FormulaKind, Callable[[Float[Tensor, "... D"]], Float[Tensor, "... D"]]] = {
    "ln": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms": lambda x: F.rms_norm(x, x.shape[-1:]),
    "bn": lambda x: x,  # running statistics, gain and bias make one linear map per feature
}
"""The formulas of norms. normlab's own norms are not used, because users can edit them."""
_SAME = 1e-3  # a formula fits if its relative RMS error is below this; eps alone causes 1e-5


class NormFormula(NamedTuple):
    """The formula that a norm computes, the axis of its features (-1 or 1), and its gain."""

    kind: FormulaKind
    axis: int
    gain: Float[Tensor, " D"]


def formula_of(norm: nn.Module, shape: torch.Size) -> NormFormula | None:
    """Return the formula that a norm computes on inputs of a shape, or None if none fits.

    A norm over positions has no formula: positions vary in number, and each feature has its own
    mean and variance.
    """
    running = keeps_running_statistics(norm)
    if is_instance_norm(norm):
        return None
    x = _trial_input(norm, shape)
    y = copied(norm).float()(x)
    axes = (-1,) if isinstance(norm, Norm) else (-1, 1)  # normlab's norms have features last
    tries: Any = [("bn", 1)] if running else product(("ln", "rms"), axes)
    for kind, axis in tries:
        z = FORMULAS[kind](x.movedim(axis, -1))
        gain, _, error = fitted(sums(z, y.movedim(axis, -1)))
        if error < _SAME:
            weight: Any = getattr(norm, "weight", None)
            return NormFormula(kind, axis, weight if running and weight is not None else gain)
    return None


def is_instance_norm(norm: nn.Module) -> bool:
    """Return whether a norm pools each feature over positions.

    This is group norm with one feature per group, or a norm without running statistics that is
    torch's instance norm or whose class is named after it. Running the norm does not show this: on
    one length, instance norm computes the same as layer norm over positions.
    """
    if isinstance(norm, nn.GroupNorm):
        return norm.num_groups == norm.num_channels > 1
    suggested = suggested_poolings(class_name(norm))
    by_name = any("position" in each.some and "feature" in each.none for each in suggested)
    return (by_name or isinstance(norm, _InstanceNorm)) and not keeps_running_statistics(norm)


def _trial_input(norm: nn.Module, shape: torch.Size) -> Tensor:
    """Return an input with four rows and otherwise the given shape.

    Its values are large, so that eps does not matter. Their scale and mean differ between rows, so
    that instance norm is not linear.
    """
    generator = torch.Generator().manual_seed(0)
    scale, mean = torch.rand(2, 4, *[1] * (len(shape) - 1), generator=generator)
    x = (torch.randn(4, *shape[1:], generator=generator) + mean) * (10 + 30 * scale)
    return x.to(values_of_norm(norm).device)


def values_of_norm(norm: nn.Module) -> Tensor:
    """Return a floating-point parameter or buffer of a norm, for its dtype and device.

    Returns a scalar on the CPU if the norm has neither.
    """
    values = (w for w in (*norm.parameters(), *norm.buffers()) if w.is_floating_point())
    return next(values, torch.zeros(()))
