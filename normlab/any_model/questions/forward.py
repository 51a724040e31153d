"""The question of whether a forward pass is repeatable and its output finite."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from normlab.any_model.batches.example import Example, call
from normlab.any_model.batches.outputs import Overlap, outputs_of, tensors
from normlab.any_model.questions.culprit import locate
from normlab.any_model.questions.examination import LEAK, Examination, PassPair
from normlab.any_model.questions.wording import by_how_much
from normlab.any_model.tracing.calls import Call, inside
from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.findings.relative_change import largest_change, percent


@question("forward", of="module")
def forward(examination: Examination) -> Finding:
    """Is the forward pass repeatable and free of NaN, and does it leave its inputs unchanged?

    A row is run twice, with different random numbers. If the outputs differ or contain NaN, no
    other question is asked, except `statistics` after NaN. A third pass starts from the state that
    the second one leaves in the model; all others start from the same state.
    """
    row, outputs = examination.lead, examination.outputs(examination.lead)
    with_nan = [name for name, y in outputs.items() if bool(y.isnan().any())]
    if with_nan:
        share = percent(float(outputs[with_nan[0]].isnan().double().mean()))
        path, sentence = _first_not_finite(examination, row)
        which = f" {with_nan[0]}" * (len(outputs) > 1)
        text = f"the output{which} has NaN at {share} of its entries, first in {sentence}"
        return Finding(text, verdict="broken", module=path)
    before = row.change(row.content, lambda _, x: x.clone())
    twice = PassPair(replace(row), row, Overlap())
    with examination.runner.reseeded():
        differs = examination.change_in_model_dtype(twice) > 0
        if differs and (change := examination.change(twice)).in_float64 > LEAK:
            path, sentence = locate(examination, twice, change.output, "random numbers")
            how = by_how_much(change.in_float64, change.non_finite)
            text = f"the output {how} from one run to the next: {sentence}"
            return Finding(
                text, verdict="broken", value=change.in_float64, threshold=LEAK, module=path
            )
    examination.runner.restore()
    with torch.no_grad():
        call(examination.model, before, examination.runner.forward, copies=False)
        # from the state that the first left
        second = outputs_of(call(examination.model, row, examination.runner.forward))
    changed = [k for k in row.content if not torch.equal(before.values[k], row.values[k])]
    if changed:
        return Finding(f"changes its input {changed[0]} in place", verdict="look")
    both = [name for name in outputs if name in second]
    value, non_finite = largest_change((second[n], outputs[n]) for n in both)
    if value > examination.rounding:
        how = by_how_much(value, non_finite)
        text = f"the output of a second call {how}: the model keeps state between calls"
        return Finding(text, verdict="look", value=value, threshold=examination.rounding)
    return Finding("repeats exactly", verdict="fine", value=0.0, threshold=LEAK)


def _first_not_finite(examination: Examination, row: Example) -> tuple[str | None, str]:
    """Return the first module that turns finite numbers into NaN, or the source of the infinity."""
    calls, _ = examination.runner.record(row)

    def has(value: Any, test: Any) -> bool:
        return any(bool(test(x).any()) for x in tensors(value) if x.is_floating_point())

    def not_finite(x: Tensor) -> Tensor:
        return ~x.isfinite()

    def innermost(some: list[Call]) -> Call | None:
        return next((a for a in some if not any(inside(b.name, a.name) for b in some)), None)

    nan = innermost([c for c in calls if has(c.output, torch.isnan)])
    if nan is None:
        return None, "the model, after its last module"
    if not has(nan.inputs, not_finite):
        return nan.name, nan.name or "the model"
    makers = [c for c in calls if has(c.output, not_finite) and not has(c.inputs, not_finite)]
    if (source := innermost(makers[: calls.index(nan) + 1])) is None:
        return nan.name, nan.name or "the model"
    limit = f"{torch.finfo(examination.torch_dtype).max:.3g} is the largest {examination.dtype}"
    if not inside(nan.name, source.name):
        return source.name, f"{source.name or 'the model'}, whose output is infinite ({limit})"
    where = f"`{source.name}`'s" if source.name else "the model's"
    return source.name, f"{where} own forward, infinite before `{nan.name}` ({limit})"
