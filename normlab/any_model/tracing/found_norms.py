"""Finds the norms in any model, and by experiment what each one pools over.

A norm is run on its own recorded input in float64, or float32, with gains of 1. One value of the
input is changed; the outputs that change with it share its statistics. Each axis of the input has a
role, inferred from how its size changes with the number of rows and the length: `batch`,
`position`, both (flattened) or `feature`.
"""

import math
import re
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from normlab.any_model.batches.example import Example, ModelFailed
from normlab.any_model.tracing.calls import Call, Runner, inside
from normlab.any_model.tracing.functional_norms import (
    OVER_FEATURES,
    OVER_POSITIONS,
    Functional,
    Functionals,
)
from normlab.any_model.tracing.norm_modules import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    eps_of,
    is_known_norm,
    may_be_norm,
)
from normlab.any_model.tracing.norm_trial import LARGE, Trial, place_of
from normlab.any_model.tracing.scripted import class_name
from normlab.errors import UserError
from normlab.norms.axes import AXES, axes_in_words, in_order
from normlab.norms.base import Norm

NEAR_ZERO = 0.01  # as a share of the root mean square of a norm's gains
_ROWS = 3
_POSITIONS = 16  # enough positions to see what a norm pools over
_FEW = 4  # most parameters per output value of a row in a norm of an unknown class
_FEATURE, _POSITION, _BATCH = (frozenset({axis}) for axis in ("feature", "position", "batch"))
_BOTH = _BATCH | _POSITION
_SAYS: Sequence[tuple[str, str, Set[str], Set[str]]] = (
    # name pattern; what it suggests; axes: it pools at least one of these, and none of those
    (r"batch_?norm|^bn_?\d*$", "pooling each feature over the batch", _BATCH, _FEATURE),
    (r"instance_?norm", "pooling each feature over positions", _POSITION, _BATCH | _FEATURE),
    (r"group_?norm|^gn_?\d*$", "pooling groups of features per row", _FEATURE | _POSITION, _BATCH),
    (r"(layer|rms)_?norm|^ln(_\w+)?$", "pooling a token's features", _FEATURE, _BATCH | _POSITION),
)
Roles = Sequence[Set[str]]
"""The roles of each axis of a norm's input."""


@dataclass(frozen=True)
class Reach:
    """Which outputs of a norm one input value affects through the statistics.

    `features` has the number of affected features and the total. `padding` is whether a padded
    value affects real positions; None if the norm was not called with a padded row.
    """

    pools: tuple[str, ...]
    features: tuple[int, int]
    padding: bool | None


class Suggestion(NamedTuple):
    """What a norm's name suggests that it does, but it does not: the name, and what, in words."""

    name: str
    words: str


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
        reached, everything = mine.features
        words = axes_in_words(mine.pools) + ", padding included" * bool(mine.padding)
        if 1 < reached < everything:
            words = words.replace("feature", f"feature ({reached} of {everything})")
        if not later:
            return f"{words} (fixed in evaluation)" if mine.pools else "nothing: fixed statistics"
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
    axes = _roles(calls, example, trial)
    trials = [trial, *(Trial(padded, dtype) for padded in calls[2:])]
    evaluation = _reach(trials, calls, example, axes, False)
    if not sure and not evaluation.pools:
        return None
    training = gains = None
    with suppress(Exception):  # such as torch's error for one value per feature
        same = torch.equal(trial.before(), trial.before(training=True))
        training = evaluation if same else _reach(trials, calls, example, axes, True)
        gains = _gains(trial, axes)
    kind = module.kind if isinstance(module, Functional) else class_name(module)
    norm = FoundNorm(
        call.name, kind, (*call.output.shape,), training, evaluation, eps_of(module), gains
    )
    return replace(norm, misnomer=_misnomer(norm, module, axes, example.length))


def _roles(calls: Sequence[Call], example: Example, trial: Trial) -> Roles:
    shape, *others = (call.output.shape for call in calls)
    axes, batch, position = range(len(shape)), {0}, set[int]()
    if others and all(len(other) == len(shape) for other in others):
        short, long = others
        position = {a for a in axes if short[a] != long[a]}
        batch = {a for a in axes if short[a] != shape[a]} - position
        batch = batch or (position & {0})  # rows and positions are flattened
    elif example.length:
        fits = {a for a in axes if shape[a] == example.length}  # one of these may be the channels
        position = (fits - {_channels(trial)} if len(fits) > 1 else fits) - batch
    position = position or {*axes} - batch - {_channels(trial)}
    roles = {"batch": batch, "position": position}
    by_axis = ({role for role, its_axes in roles.items() if a in its_axes} for a in axes)
    return [role or _FEATURE for role in by_axis]


def _channels(trial: Trial) -> int:
    """Return the channel axis of an image: the gain's or, without a gain, torch's convention."""
    before = trial.before()
    for gain in filter(lambda gain: gain.ndim == 1, trial.module.parameters()):
        gain.data[0] += 1
        counts = _counts(trial(trial.x) != before)
        gain.data[0] -= 1
        for axis, count in enumerate(counts):
            if count == 1 and len(gain) == trial.x.shape[axis]:
                return axis
    function = getattr(vars(trial.module).get("function"), "__name__", "")
    last = isinstance(trial.module, CHANNELS_LAST) or function in OVER_FEATURES
    first = isinstance(trial.module, CHANNELS_FIRST) or function in OVER_POSITIONS
    return trial.x.ndim - 1 if last or (trial.x.ndim < 4 and not first) else 1


def _counts(changed: Tensor) -> list[int]:
    """Return, for each axis, at how many indices anything changed."""
    sizes = enumerate(changed.shape)
    return [int(changed.movedim(a, 0).reshape(n, -1).any(1).sum()) for a, n in sizes]


def _reach(
    trials: Sequence[Trial], calls: Sequence[Call], example: Example, axes: Roles, training: bool
) -> Reach:
    """Return what the first real value of row 0 affects, and whether row 0's padding affects it."""
    trial, on_the_left, padding = trials[0], example.side == "left", None
    first = [-on_the_left if role == _POSITION else 0 for role in axes]
    changed = trial.changed_outputs(first, training)
    counts = _counts(changed)
    pools = {r for a, role in enumerate(axes) for r in role if counts[a] > 1}
    if any(_in_one_row(changed, a, example) for a, role in enumerate(axes) if role == _BOTH):
        pools -= _BATCH
    features = [a for a, role in enumerate(axes) if role == _FEATURE]
    reached, everything = (math.prod(n[a] for a in features) for n in (counts, trial.x.shape))
    for padded in trials[1:]:
        alone = calls[1].output.shape
        for axis, (real, size) in enumerate(zip(alone, padded.x.shape, strict=True)):
            if real < size:  # change the outermost padding
                last = [-1 if a == axis and not on_the_left else 0 for a in range(len(alone))]
                start = (size - real) * on_the_left
                reaches = padded.changed_outputs(last, training).narrow(axis, start, real)
                padding = bool(reaches.any())
    return Reach(tuple(in_order(pools)), (reached, everything), padding)


def _in_one_row(changed: Tensor, axis: int, example: Example) -> bool:
    """Return whether all changes along a flattened axis of rows and positions are in row 0."""
    length, rest = divmod(changed.shape[axis], example.size)
    places = changed.movedim(axis, 0).flatten(1).any(1).nonzero()
    return not rest and bool((places < length).all())


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
    others = [a for a, role in enumerate(axes) if role != _FEATURE]
    gains = (squares.mean(others) if others else squares).sqrt()
    near = gains <= NEAR_ZERO * gains.square().mean().sqrt()
    return gains.numel(), int(near.sum())


def _misnomer(norm: FoundNorm, module: nn.Module, axes: Roles, length: int) -> Suggestion | None:
    """Return what a norm's class or attribute suggests, if the norm pools over other axes."""
    pools = {*(norm.training or norm.evaluation).pools}
    present = {r for size, role in zip(norm.shape, axes, strict=True) if size > 1 for r in role}
    names = [
        (name, words, some, none)
        for name in (norm.kind, norm.name.rpartition(".")[2])
        for pattern, words, some, none in _SAYS
        if re.search(pattern, name.lower()) and "frozen" not in norm.kind.lower()
    ]
    if isinstance(module, Norm):
        words = f"pooling over {axes_in_words(module.pools)}"
        names = [(norm.kind, words, module.pools, {*AXES} - module.pools)]
    for name, words, some, none in names:
        if not length and "feature" in pools:
            none = none - _POSITION  # a layer norm over whole images, as in torch's documentation
        if pools & none or (some & present and not some & pools):
            return Suggestion(name, words)
    return None
