"""Counts the gains of a norm, and those near 0, by running the norm with other parameters."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.any_model.tracing.axis_roles import FEATURE, Roles
from normlab.any_model.tracing.norm_trial import LARGE, Trial

NEAR_ZERO = 0.01  # times the RMS of a norm's gains
_SCALED = 1e-5  # a smaller factor, relative to the largest difference, is rounding
_WHOLE = 0.01  # the largest distance of an entry's number from a whole number


class Gains(NamedTuple):
    """The number of a norm's gains, and of those that are at most 0.01 times the gains' RMS."""

    number: int
    near_zero: int


def gains_of(trial: Trial, axes: Roles) -> Gains | None:
    """Count the entries of a norm's gain, or return None if it has none.

    An input that alternates between +1000 and -1000 is normalized to about +1 and -1, and an input
    of 0 to 0. The difference of the outputs has no bias: it is the gain times a factor. The factor
    is how much the difference changes if a parameter is 1 instead of 0. With the parameter's
    entries numbered 1, 2, 3 ..., it shows which entry is the gain of which output. This works for
    gains `w` and `1 + w` of any shape. For others, such as `exp(w)`, one per feature is assumed.

    The copy in the trial gets its original parameters back.
    """
    parameters = [*trial.module.parameters()]
    for parameter, value in zip(parameters, trial.gains, strict=True):
        parameter.data.copy_(value)
    usual = _difference(trial)
    for parameter in sorted(parameters, key=Tensor.numel, reverse=True):
        value, numbers = parameter.data.clone(), 1 + torch.arange(parameter.numel())
        differences: list[Tensor] = []
        for other in (torch.zeros(()), torch.ones(()), numbers.view_as(parameter)):
            parameter.data.copy_(other)
            differences.append(_difference(trial))
        parameter.data.copy_(value)
        zero, one, numbered = differences
        factor = one - zero
        scaled = factor.abs() > _SCALED * one.abs().max()
        if not scaled.any():  # a bias
            continue
        number = (numbered - zero)[scaled] / factor[scaled]
        index = number.round().long().clamp(1, len(numbers)) - 1
        if not (number - 1 - index).abs().max() <= _WHOLE:
            return _counted(_per_feature(usual, axes))
        products, squares = usual.new_zeros(2, len(numbers))
        products.index_add_(0, index, (usual * factor)[scaled])
        squares.index_add_(0, index, factor[scaled].square())
        return _counted((products / squares.clamp(min=torch.finfo(squares.dtype).tiny)).abs())
    return None


def _difference(trial: Trial) -> Tensor:
    """Return the output for an alternating input minus the output for 0, in training mode."""
    grid = torch.meshgrid(*map(torch.arange, trial.x.shape), indexing="ij")
    sign = (1 - 2 * (torch.stack(grid).sum(0) % 2)).to(trial.x)
    return trial(LARGE * sign, training=True) - trial(0 * sign, training=True)


def _per_feature(difference: Tensor, axes: Roles) -> Tensor:
    """Return the RMS of a difference over all axes but the features."""
    others = [a for a, role in enumerate(axes) if role != FEATURE]
    squares = difference.square()
    return (squares.mean(others) if others else squares).sqrt()


def _counted(gains: Float[Tensor, "..."]) -> Gains:
    near = gains <= NEAR_ZERO * gains.square().mean().sqrt()
    return Gains(gains.numel(), int(near.sum()))
