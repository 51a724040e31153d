"""Measures a norm for the questions of the contract. `contract.py` says what must be true.

The iterators measure one case at a time, so that nothing more is measured after a violation.
"""

import copy
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from normlab.inspection.examples.articles import LAST_IS_PADDING
from normlab.inspection.norm.bare_norm import STEPS, BareNorm, train_step, varied_loss
from normlab.inspection.norm.norm_calls import (
    call,
    differ,
    one_by_one,
    run,
    run_copy,
    running_tables,
)
from normlab.inspection.norm.padding_effect import with_padding
from normlab.inspection.norm.pooling import AXIS_OF, dependence, influences
from normlab.norms.base import Norm
from normlab.norms.batch import BatchNorm
from normlab.norms.model_norms import ModelNorms, recalibrated
from normlab.norms.ramp import Clock
from normlab.norms.running import RunningNorm, normalized_by

STEPS_TO_SETTLE = 400
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


class Output(NamedTuple):
    """The output of a new norm for an input of shape `input_shape`, `[B, P, D]`."""

    input_shape: torch.Size
    shape: torch.Size
    finite: bool
    input_unchanged: bool


def outputs_by_shape(norm: BareNorm) -> Iterator[Output]:
    """Yield the output of a new norm for a batch, for one sequence, and for single tokens."""
    for size in ((4, 6), (1, 6), (3, 1)):
        x = norm.values(*size)
        before = x.clone()
        y = norm.new()(x)  # without tokens, all tokens are real
        yield Output(x.shape, y.shape, bool(y.isfinite().all()), torch.equal(x, before))


def finite_for_constants(norm: BareNorm) -> Iterator[tuple[float, bool]]:
    """Yield values, and for each whether the output is finite if all inputs have this value."""
    for value, training in product((0.0, 3.0), (True, False)):
        x = torch.full((4, 6, norm.width), value, dtype=torch.float64)
        yield value, bool(call(norm.new().train(training), x).isfinite().all())


def output_dtypes(norm: BareNorm) -> Iterator[tuple[torch.dtype, torch.dtype]]:
    """Yield dtypes of the input, each with the dtype of the output.

    The norm is in training and, converted to the dtype of the input, in eval.
    """
    x, valid = norm.tokens()
    for dtype in DTYPES:
        in_training = norm.new(torch.float64 if dtype == torch.float64 else torch.float32)
        for bare in (in_training, norm.new(dtype).eval()):
            yield dtype, call(bare, x.to(dtype), valid).dtype


class UnderBf16(NamedTuple):
    """Whether statistics are accurate under bf16, and the names of tables not in float32."""

    accurate: bool
    other_tables: list[str]


def under_bf16(norm: BareNorm) -> UnderBf16:
    """Compare the outputs under bf16 and in float32 for the same values near 300.

    Near 300, numbers in bf16 are 2 apart, which is too coarse for the statistics of values with a
    standard deviation of 3.
    """
    x, valid = norm.tokens()
    bare, exact = norm.new(torch.float32), norm.new(torch.float32)
    x = (x + 300).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = call(bare, x, valid).float()[valid]
    accurate = torch.allclose(y, call(exact, x.float(), valid)[valid], rtol=1e-2, atol=1e-2)
    tables = running_tables(bare).items()
    return UnderBf16(accurate, [name for name, t in tables if t.dtype != torch.float32])


def affecting_axes(norm: BareNorm) -> set[str]:
    """Return the axes along which outputs depend on other values, before or after training."""
    norms = (norm.new(), norm.trained())
    return {
        AXIS_OF[influence]
        for bare in norms
        for influence in influences(dependence(bare, features=2))
    }


class PaddingChange(NamedTuple):
    """What padding changes in a mode (outputs, gradients or statistics of real tokens).

    `leaked` is whether a gradient flows into padding.
    """

    mode: str
    changed: list[str]
    leaked: bool


def changes_by_padding(norm: BareNorm) -> Iterator[PaddingChange]:
    """Yield what padding changes, for increasing amounts of padding in each mode."""
    x = norm.values(4, 5)
    real = torch.ones(4, 5, dtype=torch.bool)
    for bare, mode in ((norm.new(), "training"), (norm.trained().eval(), "eval")):
        plain = with_padding(bare, x, None)
        for columns, value in ((0, 0.0), (3, 0.0), (6, 1e3)):
            padded = with_padding(bare, x, real, columns=columns, value=value)
            pairs = {
                "outputs": (plain.outputs, padded.outputs),
                "gradients": (plain.gradients, padded.gradients),
                "statistics": (plain.statistics, padded.statistics),
            }
            changed = [what for what, pair in pairs.items() if differ(*pair)]
            yield PaddingChange(mode, changed, bool(padded.leaked.any()))


class InEval(NamedTuple):
    """Whether a sequence's output in eval changes if it is alone, or is fed token by token."""

    alone: bool
    token_by_token: bool


def dependence_on_others_in_eval(norm: BareNorm) -> InEval:
    """Compare the outputs for a batch in eval with those for single sequences and tokens."""
    bare = norm.trained().eval()
    x, valid = norm.tokens(STEPS + 1)
    whole = run_copy(bare, x, valid)[valid]
    single = [run_copy(bare, x[[n]], valid[[n]])[0, real] for n, real in enumerate(valid)]
    return InEval(
        differ(whole, torch.cat(single)), differ(whole, one_by_one(bare, x, valid)[valid])
    )


def gradients_by_name(norm: BareNorm) -> dict[str, Tensor | None]:
    """Return the gradients of the input and of all parameters, keyed by name."""
    bare = norm.new()
    x, valid = norm.tokens()
    varied_loss(call(bare, x.requires_grad_(), valid)[valid]).backward()
    return {"the input": x.grad, **{name: p.grad for name, p in bare.named_parameters()}}


def has_exact_gradient(norm: BareNorm) -> bool:
    """Return whether the backward pass agrees with finite differences."""
    bare = norm.new()
    return torch.autograd.gradcheck(
        lambda x: call(copy.deepcopy(bare), x, LAST_IS_PADDING) * LAST_IS_PADDING[..., None],
        norm.values(2, 3).requires_grad_(),
        atol=1e-6,
        fast_mode=True,
        raise_exception=False,
    )


class BothModes(NamedTuple):
    """The outputs for one batch in training, and afterwards in eval."""

    training: Tensor
    in_eval: Tensor


def outputs_in_both_modes(norm: BareNorm, x: Tensor, *, doubled: str | None = None) -> BothModes:
    """Return the outputs with momentum 1, for which the running statistics equal the batch's.

    If `doubled` is the name of a method, the method returns twice its value.
    """
    bare = norm.new()
    if bare.ramps:
        bare.begin_step(Clock(STEPS, STEPS))  # the last step of a run
    if isinstance(bare, RunningNorm):
        bare.momentum = 1.0
    _use_biased_variance(bare)
    if doubled is not None:
        kind, method = type(bare), getattr(type(bare), doubled, None)
        twice = {doubled: lambda self, *args: 2 * method(self, *args)} if method else {}
        cast("Any", bare).__class__ = type(kind.__name__, (kind,), twice)
    with torch.no_grad():
        return BothModes(call(bare, x), call(bare.eval(), x))


def settled_outputs(norm: BareNorm, x: Tensor) -> BothModes:
    """Return the outputs after many steps on this batch, all of them as at the end of a run."""
    bare = norm.new()
    _use_biased_variance(bare)
    norms = ModelNorms(nn.Sequential(bare))
    for _ in range(STEPS_TO_SETTLE):
        norms.begin_step(STEPS, STEPS)
        y = call(bare, x.clone().requires_grad_())
        y.sum().backward()
        norms.commit()
    with torch.no_grad():
        return BothModes(y.detach(), call(bare.eval(), x))


def _use_biased_variance(norm: Norm) -> None:
    if isinstance(norm, BatchNorm):
        norm.unbiased = False  # a batch is normalized with its biased variance


class FormulaUse(NamedTuple):
    """Whether a norm uses its formula in training, and whether it uses it in eval."""

    training: bool
    eval: bool


def formula_use(norm: BareNorm, x: Tensor) -> FormulaUse:
    """Return in which modes the output changes if the norm's formula changes.

    In training, a norm with running statistics may use its `training_formula` instead.
    """
    plain = outputs_in_both_modes(norm, x)
    other = outputs_in_both_modes(norm, x, doubled="formula")
    in_training, in_eval = (not torch.equal(y, z) for y, z in zip(plain, other, strict=True))
    if not in_training and isinstance(norm.new(), RunningNorm):
        other = outputs_in_both_modes(norm, x, doubled="training_formula")
        in_training = not torch.equal(plain.training, other.training)
    return FormulaUse(in_training, in_eval)


def changed_by_eval(norm: BareNorm) -> list[str]:
    """Return the names of the tensors that a forward pass in eval mode changes."""
    bare = norm.trained().eval()
    before = _state(bare)
    run(bare, *norm.tokens(STEPS + 1))
    return _changed(before, _state(bare))


class Resumed(NamedTuple):
    """How a loaded norm differs from the norm that was saved.

    Attributes:
        saved_after: the step after which the norm was saved.
        step: the first later step whose output or gradient differs; None if none differs.
        tensors: the entries of the state dict that differ after three more steps.
        in_eval: whether the output in eval differs after these steps.
    """

    saved_after: int
    step: int | None
    tensors: list[str]
    in_eval: bool


def resumed(norm: BareNorm) -> Iterator[Resumed]:
    """Yield the differences for a norm saved early in a run, and for one saved late in a run."""
    for stop in (3, STEPS - 3):
        saved, loaded = norm.trained(stop), norm.new()
        loaded.load_state_dict(copy.deepcopy(saved.state_dict()))
        step = next(
            (
                number
                for number in range(stop + 1, stop + 4)
                if not all(map(torch.equal, train_step(saved, number), train_step(loaded, number)))
            ),
            None,
        )
        x = norm.values(4, 6)
        tensors = _changed(_state(saved), _state(loaded))
        same = torch.equal(run_copy(saved.eval(), x), run_copy(loaded.eval(), x))
        yield Resumed(stop, step, tensors, not same)


class StatisticsEffects(NamedTuple):
    """The names of the tensors that change when running statistics are bypassed and recalibrated.

    Attributes:
        by_bypass: the tensors changed by a pass with batch statistics.
        by_recalibration: the tensors changed during recalibration.
        not_restored: the tensors still changed after recalibration.
    """

    by_bypass: list[str]
    by_recalibration: list[str]
    not_restored: list[str]


def effects_on_statistics(norm: BareNorm) -> StatisticsEffects:
    """Bypass, recalibrate and restore the running statistics of a trained norm."""
    bare = norm.trained()
    model, before = nn.Sequential(bare), _state(bare)
    x, valid = norm.tokens(STEPS + 2)
    with normalized_by(model, "batch"):
        call(bare, x.clone().requires_grad_(), valid)[valid].sum().backward()
    by_bypass = _changed(before, _state(bare))

    def feed() -> None:
        run(bare, x, valid)

    with recalibrated(model, feed):
        by_recalibration = _changed(before, _state(bare))
    return StatisticsEffects(by_bypass, by_recalibration, _changed(before, _state(bare)))


def _state(norm: nn.Module) -> dict[str, Tensor]:
    """Return copies of the tensors in a norm's state dict."""
    saved = norm.state_dict().items()
    return {name: value.clone() for name, value in saved if isinstance(value, Tensor)}


def _changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    return [name for name, x in before.items() if not torch.equal(x, after[name])]
