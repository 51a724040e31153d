"""The question of whether a forward pass is repeatable and its output finite."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normlab.any_model.batches.example import Example, InputKey, call_model
from normlab.any_model.batches.outputs import Outputs, outputs_of, tensors
from normlab.any_model.batches.overlap import Padded
from normlab.any_model.questions.culprit import Culprit, culprit_in_words, locate
from normlab.any_model.questions.examination import LEAK, Examination, OutputChange, PassPair
from normlab.any_model.questions.wording import by_how_much
from normlab.any_model.tracing.calls import Call, inside, slow_path
from normlab.errors import UserError
from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.findings.relative_change import NonFinite, largest_change, percent


@question("forward", of="module")
def forward(examination: Examination) -> Finding:
    """Is the forward pass repeatable and free of NaN, and does it leave its inputs unchanged?

    A row is run twice, with different random numbers, and with torch's fused layers if the model
    has any. If the outputs differ or contain NaN, no other question is asked, except that
    `statistics` is asked after NaN. Then, in float64, the row is run once more directly after a
    pass, from the state in which that pass leaves the model; all other passes start from the same
    state.
    """
    if with_nan := _finding_on_nan(examination):
        return with_nan
    if random := _random_output(examination):
        return _random_finding(random)
    second = examination.in_widest_dtype(partial(_second_call, examination))
    if second.changed_inputs:
        text = f"changes its input {second.changed_inputs[0]} in place"
        return Finding(text, verdict="look")
    if second.change > second.rounding:
        how = by_how_much(second.change, second.non_finite)
        text = f"the output of a second call {how}, so the model keeps state between calls"
        return Finding(text, verdict="look", value=second.change, threshold=second.rounding)
    return Finding("repeats exactly", verdict="fine", value=0.0, threshold=LEAK)


class RandomOutput(NamedTuple):
    """How much the output changes from one run to the next, and the modules that change it."""

    change: OutputChange
    culprit: Culprit


def _random_output(examination: Examination) -> RandomOutput | None:
    """Run a row twice with different random numbers. Return None if the outputs agree."""
    row = examination.longest_row
    twice = PassPair(replace(row), row, Padded())
    with examination.runner.reseeded():
        if not examination.differs(twice, in_float64=False, limit=0.0):
            return None
        change = examination.change(twice)
        if change.in_float64 <= LEAK:
            return None
        return RandomOutput(change, locate(examination, twice, change.output))


def _random_finding(random: RandomOutput) -> Finding:
    change, culprit = random
    how = by_how_much(change.in_float64, change.non_finite)
    why = culprit_in_words(culprit, "random numbers")
    return Finding(
        f"the output {how} from one run to the next: {why}",
        verdict="broken",
        value=change.in_float64,
        threshold=LEAK,
        module=culprit.path,
    )


@dataclass(frozen=True)
class SecondCall:
    """What one call does to the next if the model is not restored in between.

    `changed_inputs` are the inputs that the first call modified in place. `change` is the relative
    change of the output; if it is not finite, `non_finite` is the reason. `rounding` is the largest
    change that rounding causes.
    """

    changed_inputs: list[InputKey]
    change: float = 0.0
    non_finite: NonFinite = ""
    rounding: float = LEAK


def _second_call(examination: Examination, in_float64: bool) -> SecondCall:
    """Run the longest row twice in succession, without restoring the model's state in between."""
    row, model, run = examination.longest_row, examination.model, examination.runner
    outputs = examination.outputs(row, in_float64=in_float64)
    before = row.change(row.content, lambda _, x: x.clone())
    run.restore()
    with torch.no_grad(), slow_path(), examination.operations(in_float64=in_float64):
        call_model(model, before, run.forward, copies=False)
        second = outputs_of(call_model(model, row, run.forward))
    changed = [k for k in row.content if not _are_equal(before.values[k], row.values[k])]
    if changed:  # the second output is then for different inputs
        return SecondCall(changed)
    both = [name for name in outputs if name in second]
    change, non_finite = largest_change((second[n], outputs[n]) for n in both)
    rounding = examination.largest_rounding(in_float64=in_float64)
    return SecondCall(changed, change, non_finite, rounding)


def _are_equal(x: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same values, where NaN equals NaN."""
    return bool(((x == other) | ((x != x) & (other != other))).all())


@dataclass(frozen=True)
class NaNSource:
    """Where NaN is first computed.

    `path` is the module's path, or None if NaN appears after the last module. If `infinite`, the
    module computes an infinity, which later becomes NaN. The infinity is in its output or, if
    `inside` is set, appears before it calls the module at that path.
    """

    path: str | None
    infinite: bool = False
    inside: str | None = None


def _source_of_nan(examination: Examination, row: Example) -> NaNSource:
    """Return the first module that computes NaN, or an infinity before it, from finite numbers."""
    calls, _ = examination.runner.record(row)

    def has(value: Any, test: Any) -> bool:
        return any(bool(test(x).any()) for x in tensors(value) if x.is_floating_point())

    def not_finite(x: Tensor) -> Tensor:
        return ~x.isfinite()

    def innermost(some: list[Call]) -> Call | None:
        return next((a for a in some if not any(inside(b.name, a.name) for b in some)), None)

    nan = innermost([c for c in calls if has(c.output, torch.isnan)])
    if nan is None:
        return NaNSource(None)
    if not has(nan.inputs, not_finite):
        return NaNSource(nan.name)
    makers = [c for c in calls if has(c.output, not_finite) and not has(c.inputs, not_finite)]
    source = innermost(makers[: calls.index(nan) + 1])
    if source is None:
        return NaNSource(nan.name)
    within = nan.name if inside(nan.name, source.name) else None
    return NaNSource(source.name, infinite=True, inside=within)


def _finding_on_nan(examination: Examination) -> Finding | None:
    """Return the finding that an output for the longest row contains NaN, or None if none does."""
    row = examination.longest_row
    for fused in examination.fast_paths:
        outputs: Outputs = {}
        with suppress(UserError):
            outputs = examination.outputs(row, fast=fused)
        shares = {name: float(y.isnan().double().mean()) for name, y in outputs.items()}
        name = next((name for name, share in shares.items() if share), None)
        if name is None:
            continue
        which = f" {name}" * (len(outputs) > 1)
        text = f"the output{which} is NaN at {percent(shares[name])} of its entries, "
        if fused:
            text += "but only where torch fuses attention or encoder layers, without gradients"
            return Finding(text, verdict="broken")
        source = _source_of_nan(examination, row)
        text += f"first in {_in_words(source, examination)}"
        return Finding(text, verdict="broken", module=source.path)
    return None


def _in_words(source: NaNSource, examination: Examination) -> str:
    if source.path is None:
        return "the model, after its last module"
    if not source.infinite:
        return source.path or "the model"
    limit = f"{torch.finfo(examination.torch_dtype).max:.3g} is the largest {examination.dtype}"
    if source.inside is None:
        return f"{source.path or 'the model'}, whose output is infinite ({limit})"
    where = f"`{source.path}`'s" if source.path else "the model's"
    return f"{where} own forward, infinite before `{source.inside}` ({limit})"
