"""The question of whether a forward pass is repeatable and its output finite."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normlab.any_model.batches.example import Example, InputKey, call_model
from normlab.any_model.batches.outputs import Outputs, outputs_of, tensors
from normlab.any_model.batches.overlap import Padded
from normlab.any_model.questions.culprit import Culprit, culprit_in_words, locate
from normlab.any_model.questions.examination import LEAK, Examination, OutputChange, PassPair
from normlab.any_model.questions.wording import by_how_much
from normlab.any_model.tracing.calls import Call, inside
from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.findings.relative_change import NonFinite, largest_change, percent


@question("forward", of="module")
def forward(examination: Examination) -> Finding:
    """Is the forward pass repeatable and free of NaN, and does it leave its inputs unchanged?

    A row is run twice, with different random numbers. If the outputs differ or contain NaN, no
    other question is asked, except that `statistics` is asked after NaN. Then the row is run once
    more directly after a pass, from the state in which that pass leaves the model; all other passes
    start from the same state.
    """
    outputs = examination.outputs(examination.longest_row)
    if with_nan := examination.outputs_with_nan:
        if infinite := _infinite_inputs(examination.longest_row):
            return _infinite_finding(outputs, with_nan[0], infinite[0])
        source = _source_of_nan(examination, examination.longest_row)
        return _with_nan(examination, source, outputs, with_nan[0])
    if random := _random_output(examination):
        return _random_finding(random)
    second = _second_call(examination, outputs)
    if second.changed_inputs:
        text = f"changes its input {second.changed_inputs[0]} in place"
        return Finding(text, verdict="look")
    if second.change > examination.rounding:
        how = by_how_much(second.change, second.non_finite)
        text = f"the output of a second call {how}, so the model keeps state between calls"
        return Finding(text, verdict="look", value=second.change, threshold=examination.rounding)
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
        if examination.change_in_model_dtype(twice) == 0:
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
    change of the output; if it is not finite, `non_finite` is the reason.
    """

    changed_inputs: list[InputKey]
    change: float
    non_finite: NonFinite


def _second_call(examination: Examination, outputs: Outputs) -> SecondCall:
    """Run the longest row twice in succession, without restoring the model's state in between."""
    row, model, run = examination.longest_row, examination.model, examination.runner
    before = row.change(row.content, lambda _, x: x.clone())
    run.restore()
    with torch.no_grad():
        call_model(model, before, run.forward, copies=False)
        second = outputs_of(call_model(model, row, run.forward))
    changed = [k for k in row.content if not torch.equal(before.values[k], row.values[k])]
    if changed:  # the second output is then for different inputs
        return SecondCall(changed, 0.0, "")
    both = [name for name in outputs if name in second]
    return SecondCall(changed, *largest_change((second[n], outputs[n]) for n in both))


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


def _infinite_inputs(row: Example) -> list[str]:
    """Return the names of the inputs that have infinities, except additive masks."""
    names: list[str] = []
    for key, x in row.values.items():
        if isinstance(x, Tensor) and x.is_floating_point() and bool(x.isinf().any()):
            name = row.names.get(key, str(key))
            is_mask = "mask" in name or not (x[x != -torch.inf]).any()
            names += [] if is_mask else [name]
    return names


def _infinite_finding(outputs: Outputs, name: str, infinite: str) -> Finding:
    """Return the finding that the output `name` contains NaN and the input `infinite` infinity."""
    text = f"{_where_nan(outputs, name)}, but the first batch has infinities in `{infinite}`"
    return Finding(f"{text}; pass finite numbers", verdict="broken")


def _where_nan(outputs: Outputs, name: str) -> str:
    """Return the words that an output contains NaN, and how much of it."""
    share = percent(float(outputs[name].isnan().double().mean()))
    which = f" {name}" * (len(outputs) > 1)
    return f"the output{which} is NaN at {share} of its entries"


def _with_nan(examination: Examination, source: NaNSource, outputs: Outputs, name: str) -> Finding:
    """Return the finding that the output `name` contains NaN."""
    text = f"{_where_nan(outputs, name)}, first in {_in_words(source, examination)}"
    return Finding(text, verdict="broken", module=source.path)


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
