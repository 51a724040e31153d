"""The question of how much each layer and each norm contributes to the output."""

import torch
from torch import nn

from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.slow_questions import (
    NOTHING,
    change_of_lead,
    layer_outputs,
    look_above,
    with_percent,
)
from normlab.any_model.surgery.ablation import skip
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question


@question("worth", of="module", slow=True)
@torch.no_grad()
def worth(examination: Examination) -> Finding:
    """How much does the output change without each layer, and without each norm?

    A layer is a numbered module with submodules whose output has its input's shape. Layers and
    norms are replaced by the identity, one at a time. The value is the largest RMS(y' - y) / RMS(y)
    of the longest row.
    """
    modules, rows, answers = dict(examination.model.named_modules()), [], []
    for kind, names in (
        ("layer", layer_outputs(examination)),
        ("norm", [norm.name for norm in examination.norms]),
    ):
        parts = {name: modules[name] for name in names if name in modules}
        changes = {path: _change_without(examination, module) for path, module in parts.items()}
        rows += [(kind, *pair) for pair in changes.items()]
        ends = sorted((value, name) for name, value in changes.items())
        if ends:
            most, least = with_percent(*ends[-1]), with_percent(*ends[0])
            answers.append(f"{kind} that matters most: {most}, least: {least}")
    if not rows:
        return NOTHING
    table = AnswerTable(("kind", "left out", "change"), rows)
    return look_above("; ".join(answers), max(row[2] for row in rows), torch.inf, table)


def _change_without(examination: Examination, module: nn.Module) -> float:
    """Return how much the longest row's output changes if a module returns its first argument."""
    return change_of_lead(examination, lambda: module.register_forward_hook(skip, with_kwargs=True))
