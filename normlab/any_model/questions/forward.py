"""The question of whether a forward pass is repeatable and its output finite."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from normlab.any_model.batches.example import Example, call
from normlab.any_model.batches.outputs import Overlap, outputs_of, tensors
from normlab.any_model.questions.culprit import locate
from normlab.any_model.questions.examination import LEAK, Examination, PassPair
from normlab.any_model.questions.leak import by_how_much
from normlab.any_model.tracing.calls import Call, inside
from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.findings.relative_change import farthest, percent


@question("forward", of="module")
def forward(about: Examination) -> Finding:
    """Is the forward pass repeatable and free of NaN, and does it leave its inputs unchanged?

    A row is run twice, with different random numbers. If the outputs differ or contain NaN, no
    other question is asked, except `statistics` after NaN. A third pass starts from the state that
    the second one leaves in the model; all others start from the same state.
    """
    row, outputs = about.lead, about.outputs(about.lead)
    odd = [name for name, y in outputs.items() if bool(y.isnan().any())]
    if odd:
        share = percent(float(outputs[odd[0]].isnan().double().mean()))
        path, sentence = _first_not_finite(about, row)
        which = f" {odd[0]}" * (len(outputs) > 1)
        text = f"the output{which} has NaN at {share} of its entries, first in {sentence}"
        return Finding(text, verdict="broken", module=path)
    before = row.change(row.content, lambda _, x: x.clone())
    twice = PassPair(replace(row), row, Overlap())
    with about.runner.reseeded():
        if about.narrow_movement(twice) > 0 and (movement := about.moved(twice)).wide > LEAK:
            path, sentence = locate(about, twice, movement.output, "random numbers")
            how = by_how_much(movement.wide, movement.oddity)
            text = f"the output {how} from one run to the next: {sentence}"
            return Finding(text, verdict="broken", value=movement.wide, threshold=LEAK, module=path)
    about.runner.restore()
    with torch.no_grad():
        call(about.model, before, about.runner.forward, copies=False)
        # from the state that the first left
        second = outputs_of(call(about.model, row, about.runner.forward))
    changed = [k for k in row.content if not torch.equal(before.values[k], row.values[k])]
    if changed:
        return Finding(f"changes its input {changed[0]} in place", verdict="look")
    both = [name for name in outputs if name in second]
    value, oddity = farthest((second[n], outputs[n]) for n in both)
    if value > about.rounding:
        how = by_how_much(value, oddity)
        text = f"the output of a second call {how}: the model keeps state between calls"
        return Finding(text, verdict="look", value=value, threshold=about.rounding)
    return Finding("repeats exactly", verdict="fine", value=0.0, threshold=LEAK)


def _first_not_finite(about: Examination, row: Example) -> tuple[str | None, str]:
    """Return the first module that turns finite numbers into NaN, or the source of the infinity."""
    calls, _ = about.runner.record(row)

    def has(value: Any, test: Any) -> bool:
        return any(bool(test(x).any()) for x in tensors(value) if x.is_floating_point())

    def not_finite(x: Tensor) -> Tensor:
        return ~x.isfinite()

    def innermost(odd: list[Call]) -> Call | None:
        return next((a for a in odd if not any(inside(b.name, a.name) for b in odd)), None)

    nan = innermost([each for each in calls if has(each.output, torch.isnan)])
    if nan is None:
        return None, "the model, after its last module"
    if not has(nan.inputs, not_finite):
        return nan.name, nan.name or "the model"
    makers = [c for c in calls if has(c.output, not_finite) and not has(c.inputs, not_finite)]
    if (source := innermost(makers[: calls.index(nan) + 1])) is None:
        return nan.name, nan.name or "the model"
    limit = f"{torch.finfo(about.torch_dtype).max:.3g} is the largest {about.dtype}"
    if not inside(nan.name, source.name):
        return source.name, f"{source.name or 'the model'}, whose output is infinite ({limit})"
    where = f"`{source.name}`'s" if source.name else "the model's"
    return source.name, f"{where} own forward, infinite before `{nan.name}` ({limit})"
