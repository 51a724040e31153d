"""Finds the norms in any model, and by experiment what each one pools over.

A norm is run on its own recorded input in float64, or float32, with gains of 1. One value of the
input is changed; the outputs that change with it share its statistics (`reach.py`). Each axis of
the input has a role (`axis_roles.py`). `misnomer.py` compares the result with the norm's name.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from normlab.any_model.batches.example import Example, ModelFailed
from normlab.any_model.tracing.axis_roles import FEATURE, Roles, axis_roles
from normlab.any_model.tracing.calls import Call, Runner, inside
from normlab.any_model.tracing.functional_norms import Functional, Functionals
from normlab.any_model.tracing.misnomer import Suggestion, misnomer_of
from normlab.any_model.tracing.norm_modules import eps_of, is_known_norm, may_be_norm
from normlab.any_model.tracing.norm_trial import LARGE, Trial, place_of
from normlab.any_model.tracing.reach import Reach, reach_of
from normlab.any_model.tracing.scripted import class_name
from normlab.errors import UserError
from normlab.norms.axes import axes_in_words

NEAR_ZERO = 0.01  # as a share of the root mean square of a norm's gains
_ROWS = 3
_POSITIONS = 16  # enough positions to see what a norm pools over
_FEW = 4  # most parameters per output value of a row in a norm of an unknown class


@dataclass(frozen=True)
class FoundNorm:
    """A norm of a model, and what it pools over in training and in evaluation.

    `kind` is its class or function. `training` is None if it cannot be run in training mode.
    `gains` is how many gains it has and how many of them are near 0 (at most 0.01 times their root
    mean square). `misnomer` is what its name wrongly suggests; None if the name is right.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    training: Reach | None
    evaluation: Reach
    eps: float | None
    gains: tuple[int, int] | None
    misnomer: Suggestion | None = None

    @property
    def pools(self) -> str:
        """What it pools over, in words."""
        mine, later = self.training or self.evaluation, self.evaluation.pools
        if not mine.pools and not later:
            return "nothing: fixed statistics"
        words = mine.in_words()
        if not later:
            return f"{words} (fixed in evaluation)"
        return words if later == mine.pools else f"{words} (evaluation: {axes_in_words(later)})"


def find_norms(run: Runner, example: Example) -> list[FoundNorm]:
    """Return all norms that a forward pass calls, in the order of their calls.

    Modules that contain a norm do not count, nor do functions that a norm calls.
    """
    try:
        passes = _passes(run, small := _small(example))
        example = small
    except ModelFailed:  # the model accepts only one length
        passes = _passes(run, example)
    norms: dict[str, FoundNorm] = {}
    first = passes[0]  # try the innermost modules first and functions last
    for name in sorted(first, key=lambda n: (isinstance(first[n].module, Functional), -len(n))):
        if any(inside(norm, name) or inside(name, norm) for norm in norms):
            continue
        mine = [calls[name] for calls in passes if name in calls]
        mine = mine if len(mine) == 3 else mine[:1]
        for dtype in (torch.float64, torch.float32):  # not all kernels and devices support both
            with suppress(Exception):  # the module itself may raise anything
                if norm := _tried(mine, example, dtype):
                    norms[name] = norm
                break
    return [norms[name] for name in first if name in norms]


def _small(example: Example) -> Example:
    """Return a few rows of an example, cut to 16 positions unless they are samples or images.

    Two rows are too few: batch norm maps any two values to -1 and 1.
    """
    few = example.cut(example.rows, 0, min(_ROWS, example.size))
    inputs = [few.values[key] for key in few.content]
    if any(x.is_floating_point() and x.ndim != 3 for x in inputs):
        return few
    length = example.length
    first = max(0, length - _POSITIONS) if example.side == "left" else 0
    return few.cut(example.tokens, first, min(length, first + _POSITIONS))


def _passes(run: Runner, example: Example) -> list[dict[str, Call]]:
    """Return each pass's first calls of possible norm modules, and all calls of functional norms.

    The passes are of all rows and, if there are positions, of one row alone and of that row padded.
    """
    maybe = {name for name, module in run.model.named_modules() if may_be_norm(module)}

    def calls(variant: Example) -> dict[str, Call]:
        functions = Functionals(run.model)
        recorded, _ = run.record(variant, functions, keep=lambda name, _: name in maybe)
        return {call.name: call for call in recorded if not call.number} | functions.calls

    passes = [calls(example)]
    if example.length:
        with suppress(UserError):
            pair = (example.alone(example.lead), example.padded(example.pads))
            passes += [calls(variant) for variant in pair]
    return passes


def _tried(calls: Sequence[Call], example: Example, dtype: torch.dtype) -> FoundNorm | None:
    """Return a called module as a norm; None if it is not one.

    `calls` has its call with all rows, and with row 0 alone and padded if they could be run.
    """
    call, module = calls[0], calls[0].module
    if place_of(call) is None:
        return None
    sure, few = is_known_norm(module), _FEW * call.output[0].numel()
    if not sure and sum(weight.numel() for weight in module.parameters()) > few:
        return None
    trial = Trial(call, dtype)
    if not sure and not trial.ignores_scale():
        return None
    axes = axis_roles(calls, example, trial)
    trials = [trial, *(Trial(padded, dtype) for padded in calls[2:])]
    evaluation = reach_of(trials, calls, example, axes, False)
    if not sure and not evaluation.pools:
        return None
    training = gains = None
    with suppress(Exception):  # such as torch's error for one value per feature
        same = torch.equal(trial.before(), trial.before(training=True))
        training = evaluation if same else reach_of(trials, calls, example, axes, True)
        gains = _gains(trial, axes)
    kind = module.kind if isinstance(module, Functional) else class_name(module)
    norm = FoundNorm(
        call.name, kind, (*call.output.shape,), training, evaluation, eps_of(module), gains
    )
    sizes = zip(norm.shape, axes, strict=True)
    present = {role for size, its_roles in sizes if size > 1 for role in its_roles}
    wrong = misnomer_of(
        module,
        kind,
        call.name.rpartition(".")[2],
        (training or evaluation).pools,
        present,
        has_positions=bool(example.length),
    )
    return replace(norm, misnomer=wrong)


def _gains(trial: Trial, axes: Roles) -> tuple[int, int] | None:
    """Return the number of gains and how many are near 0; None if there are no gains.

    An input that alternates between +1000 and -1000 is normalized to +1 and -1. So the distance
    from the output for 0 is the gain, however it is parameterized (`w`, `1 + w`).
    """
    if not any(gain.numel() for gain in trial.gains):
        return None
    for parameter, gain in zip(trial.module.parameters(), trial.gains, strict=True):
        parameter.data.copy_(gain)
    grid = torch.meshgrid(*map(torch.arange, trial.x.shape), indexing="ij")
    sign = (1 - 2 * (torch.stack(grid).sum(0) % 2)).to(trial.x)
    plus, zero = (trial(x, training=True) for x in (LARGE * sign, 0 * sign))
    squares = (plus - zero).square()
    others = [a for a, role in enumerate(axes) if role != FEATURE]
    gains = (squares.mean(others) if others else squares).sqrt()
    near = gains <= NEAR_ZERO * gains.square().mean().sqrt()
    return gains.numel(), int(near.sum())
