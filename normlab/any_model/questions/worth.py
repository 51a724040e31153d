"""The question of how much each layer and each norm contributes to the output."""

from typing import NamedTuple

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

    A layer is a numbered module that has submodules and whose output has its input's shape. Layers
    and norms are replaced by the identity, one at a time. The value is the largest RMS(y' - y) /
    RMS(y), where y is the output for the longest row.
    """
    modules = dict(examination.model.named_modules())
    paths = {
        "layer": [*layer_outputs(examination)],
        "norm": [norm.name for norm in examination.norms],
    }
    rows: list[LeftOut] = []
    answers: list[str] = []
    for kind, names in paths.items():
        without = [
            LeftOut(kind, name, _change_without(examination, modules[name]))
            for name in names
            if name in modules  # functional norms are not modules
        ]
        if without:
            least, most = (
                choose(without, key=lambda row: (row.change, row.path)) for choose in (min, max)
            )
            answers.append(
                f"{kind} that matters most: {with_percent(most.change, most.path)}, least: "
                f"{with_percent(least.change, least.path)}"
            )
        rows += without
    if not rows:
        return NOTHING
    table = AnswerTable(("kind", "left out", "change"), rows)
    return look_above("; ".join(answers), max(row.change for row in rows), torch.inf, table)


class LeftOut(NamedTuple):
    """A layer or a norm (as `kind` says), and how much the output changes without it."""

    kind: str
    path: str
    change: float


def _change_without(examination: Examination, module: nn.Module) -> float:
    """Return how much the output for the longest row changes without a module."""
    return change_of_lead(examination, lambda: module.register_forward_hook(skip, with_kwargs=True))
