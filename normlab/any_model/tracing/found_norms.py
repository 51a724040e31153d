"""Finds the norms of any model and, by experiment, what each one pools over.

A norm is run on its own recorded input with gains of 1, in float64 or, if that fails, in float32.
One value of the input is changed; the outputs that change with it share its statistics
(`reach.py`). Each axis of the input has a role (`axis_roles.py`). `misnomer.py` compares the result
with the norm's name.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from normlab.any_model.batches.example import Example, ModelFailed
from normlab.any_model.tracing.axis_roles import axis_roles
from normlab.any_model.tracing.calls import Call, Runner, inside
from normlab.any_model.tracing.class_names import class_name
from normlab.any_model.tracing.functional_norms import Functional, Functionals
from normlab.any_model.tracing.gains import Gains, gains_of
from normlab.any_model.tracing.misnomer import Misnomer, misnomer_of
from normlab.any_model.tracing.norm_modules import eps_of, is_known_norm, may_be_norm
from normlab.any_model.tracing.norm_trial import (
    NormCalls,
    RowCalls,
    Trial,
    TrialFailed,
    input_place,
)
from normlab.any_model.tracing.reach import NormTrials, Reach, reach_of
from normlab.errors import UserError
from normlab.norms.axes import axes_in_words

_ROWS = 3
_POSITIONS = 16  # enough to see what a norm pools over
_FEW = 4
"""A norm of an unknown class has at most this many parameters per output value of a row."""


@dataclass(frozen=True)
class FoundNorm:
    """A norm of a model, and what it pools over in training and in evaluation.

    `kind` is the name of its class or function. `training` is None if it cannot be run in training
    mode, and `gains` is None if it has none. `misnomer` is a name that wrongly suggests what it
    pools over, or None if its names are right.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    training: Reach | None
    evaluation: Reach
    eps: float | None
    gains: Gains | None
    misnomer: Misnomer | None = None

    @property
    def pools(self) -> str:
        """What it pools over, in words."""
        training, in_evaluation = self.training or self.evaluation, self.evaluation.pools
        if not training.pools and not in_evaluation:
            return "nothing: fixed statistics"
        words = training.in_words()
        if not in_evaluation:
            return f"{words} (fixed in evaluation)"
        if in_evaluation == training.pools:
            return words
        return f"{words} (evaluation: {axes_in_words(in_evaluation)})"


class FoundNorms(NamedTuple):
    """The norms that a forward pass calls, in call order.

    `failed` maps the path of each known norm that cannot be run by itself to the exception's text.
    """

    norms: list[FoundNorm]
    failed: dict[str, str]


def find_norms(run: Runner, example: Example) -> FoundNorms:
    """Find all norms that a forward pass calls.

    Modules that contain a norm are left out, and so are functions that a norm calls.
    """
    try:
        passes = _passes(run, small := _small(example))
        example = small
    except ModelFailed:  # the model accepts only one length
        passes = _passes(run, example)
    norms: dict[str, FoundNorm] = {}
    failed: dict[str, str] = {}
    called = passes.all_rows  # try the innermost modules first and functions last
    for name in sorted(called, key=lambda n: (isinstance(called[n].module, Functional), -len(n))):
        if _overlaps(name, norms):
            continue
        calls = passes.calls(name)
        if calls is None:
            continue
        try:
            norm = _tried(calls, example)
        except TrialFailed as failure:
            if is_known_norm(called[name].module):
                failed[name] = str(failure)
            continue
        if norm is not None:
            norms[name] = norm
    return FoundNorms(
        [norms[name] for name in called if name in norms],
        {name: why for name, why in failed.items() if not _overlaps(name, norms)},
    )


def _overlaps(name: str, norms: Iterable[str]) -> bool:
    """Return whether a module contains one of the norms, or is inside one of them."""
    return any(inside(norm, name) or inside(name, norm) for norm in norms)


def _small(example: Example) -> Example:
    """Return three rows of an example, cut to 16 positions unless they are audio or images.

    Two rows would be too few, because batch norm maps any two values to -1 and 1.
    """
    few = example.select_rows(0, min(_ROWS, example.size))
    inputs = [few.values[key] for key in few.content]
    if any(x.is_floating_point() and x.ndim != 3 for x in inputs):
        return few
    length = example.length
    first = max(0, length - _POSITIONS) if example.side == "left" else 0
    return few.select_positions(first, min(length, first + _POSITIONS))


class _RowPasses(NamedTuple):
    """The calls, keyed by name, in a pass with the longest row alone and in one with it padded."""

    alone: Mapping[str, Call]
    padded: Mapping[str, Call]


class _Passes(NamedTuple):
    """The calls in a pass with all rows, keyed by name, and in passes with one row.

    `one_row` is None if the model cannot be run on one row.
    """

    all_rows: Mapping[str, Call]
    one_row: _RowPasses | None

    def calls(self, name: str) -> NormCalls | None:
        """Return a module's calls, or None if its output does not have its input's shape."""
        call = self.all_rows[name]
        if input_place(call) is None:
            return None
        if self.one_row is None or not all(name in by_name for by_name in self.one_row):
            return NormCalls(call, None)
        row = RowCalls(self.one_row.alone[name], self.one_row.padded[name])
        fits = [
            input_place(each) is not None and each.output.ndim == call.output.ndim for each in row
        ]
        return NormCalls(call, row if all(fits) else None)


def _passes(run: Runner, example: Example) -> _Passes:
    """Record the first call of each module that may be a norm, and all calls of norm functions."""
    maybe = {name for name, module in run.model.named_modules() if may_be_norm(module)}

    def calls(variant: Example) -> dict[str, Call]:
        functions = Functionals(run.model)
        recorded, _ = run.record(variant, functions, keep=lambda name, _: name in maybe)
        return {call.name: call for call in recorded if not call.number} | functions.calls

    all_rows = calls(example)
    if example.length:
        with suppress(UserError):  # raised if the model cannot be run on one row, or if padded
            row = calls(example.alone(example.longest))
            return _Passes(all_rows, _RowPasses(row, calls(example.padded(example.padding_to_add))))
    return _Passes(all_rows, None)


def _tried(calls: NormCalls, example: Example) -> FoundNorm | None:
    """Return what trials show about a called module, or None if it is not a norm.

    Raises TrialFailed if the trials fail both in float64 and in float32.
    """
    call, module = calls.all_rows, calls.all_rows.module
    few = _FEW * call.output[0].numel()
    if not is_known_norm(module) and sum(x.numel() for x in module.parameters()) > few:
        return None
    try:
        return _tried_in(torch.float64, calls, example)
    except TrialFailed:  # not all kernels and devices support float64
        return _tried_in(torch.float32, calls, example)


def _tried_in(dtype: torch.dtype, calls: NormCalls, example: Example) -> FoundNorm | None:
    """Return what trials in a dtype show about a called module, or None if it is not a norm."""
    call, module = calls.all_rows, calls.all_rows.module
    trial, is_known = Trial(call, dtype), is_known_norm(module)
    if not is_known and not trial.ignores_scale():
        return None
    axes = axis_roles(calls, example, trial)
    padded_row = Trial(calls.one_row.padded, dtype) if calls.one_row else None
    trials = NormTrials(trial, padded_row)
    evaluation = reach_of(trials, calls, example, axes, training=False)
    if not is_known and not evaluation.pools:
        return None
    training = gains = None
    with suppress(TrialFailed):  # such as torch's error for one value per feature
        same = torch.equal(trial.before(), trial.before(training=True))
        training = evaluation if same else reach_of(trials, calls, example, axes, training=True)
        gains = gains_of(trial, axes)
    kind = module.kind if isinstance(module, Functional) else class_name(module)
    shape = (*call.output.shape,)
    norm = FoundNorm(call.name, kind, shape, training, evaluation, eps_of(module), gains)
    sizes = zip(shape, axes, strict=True)
    wrong = misnomer_of(
        module,
        kind,
        call.name.rpartition(".")[2],
        (training or evaluation).pools,
        present={role for size, its_roles in sizes if size > 1 for role in its_roles},
        has_positions=bool(example.length),
    )
    return replace(norm, misnomer=wrong)
