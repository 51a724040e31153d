"""The question of how the gradient grows over the layers."""

from collections.abc import Mapping

import torch

from normlab.any_model.batches.example import message_of, run_model
from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.slow_questions import NOTHING, look_above
from normlab.any_model.tracing.restore import preserved
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.probes.gradients import STEEP, gradients_by_layer, growth_by_stack, steepest


@question("depth", of="module", slow=True)
def depth(examination: Examination) -> Finding:
    """How does the gradient grow from the first to the last layer?

    The loss is sum(y cos(y)), where y is the output for the longest row and the cosine is detached;
    no norm makes this loss constant. A layer's gradient norm is taken over all its parameters.
    """
    try:
        gradients = _gradients(examination)
    except RuntimeError as error:  # some layers have no backward pass in eval mode
        return Finding.none(f"no gradient: {message_of(error)}")
    growth = growth_by_stack(gradients)
    if not growth:
        return NOTHING
    table = AnswerTable(("layer", "gradient"), [*gradients.items()])
    return look_above(_answer(growth), steepest(growth), STEEP, table)


def _gradients(examination: Examination) -> dict[str, float]:
    """Return the gradient norm of each layer, by path. Raises RuntimeError if there are none."""
    model, row, forward = examination.model, examination.longest_row, examination.runner.forward
    with preserved(model), torch.enable_grad():
        model.requires_grad_(True).zero_grad()
        y = next(iter(run_model(model, row, forward).values()))
        (y * y.detach().cos()).sum().backward()
        return gradients_by_layer(model)


def _answer(growth: Mapping[str, float]) -> str:
    return "; ".join(
        f"gradient x {factor:.2g} from the first to the last layer{f' of {stack}' * bool(stack)}"
        for stack, factor in growth.items()
    )
