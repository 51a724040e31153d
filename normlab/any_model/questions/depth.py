"""The question of how the gradient grows over the layers."""

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
    with preserved(examination.model), torch.enable_grad():
        examination.model.requires_grad_(True).zero_grad()
        try:
            outputs = run_model(examination.model, examination.lead, examination.runner.forward)
            y = next(iter(outputs.values()))
            (y * y.detach().cos()).sum().backward()
        except RuntimeError as error:  # some layers have no backward pass in eval mode
            return Finding.none(f"no gradient: {message_of(error)}")
        layers = gradients_by_layer(examination.model)
    growth = growth_by_stack(layers)
    if not growth:
        return NOTHING
    answer = "; ".join(
        f"gradient x {v:.2g} from the first to the last layer{f' of {n}' * bool(n)}"
        for n, v in growth.items()
    )
    table = AnswerTable(("layer", "gradient"), [*layers.items()])
    return look_above(answer, steepest(growth), STEEP, table)
