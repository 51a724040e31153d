"""The question of how much each layer and each norm contributes to the output."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.slow_questions import (
    NOTHING,
    change_for_longest_row,
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
    without_layers = _without(examination, "layer", [*layer_outputs(examination)])
    without_norms = _without(examination, "norm", [norm.name for norm in examination.norms])
    rows = [*without_layers, *without_norms]
    if not rows:
        return NOTHING
    answer = "; ".join(_extremes_in_words(each) for each in (without_layers, without_norms) if each)
    table = AnswerTable(("kind", "left out", "change"), rows)
    return look_above(answer, max(row.change for row in rows), torch.inf, table)


class LeftOut(NamedTuple):
    """A layer or a norm (as `kind` says), and how much the output changes without it."""

    kind: str
    path: str
    change: float


def _without(examination: Examination, kind: str, paths: Sequence[str]) -> list[LeftOut]:
    """Return how much the output changes without each of some modules."""
    modules = dict(examination.model.named_modules())

    def change(path: str) -> float:
        module = modules[path]
        return change_for_longest_row(
            examination, lambda: module.register_forward_hook(skip, with_kwargs=True)
        )

    # functional norms are not modules
    return [LeftOut(kind, path, change(path)) for path in paths if path in modules]


def _extremes_in_words(without: Sequence[LeftOut]) -> str:
    """Describe the modules of one kind that change the output most and least."""
    ordered = sorted(without, key=lambda row: (row.change, row.path))
    least, most = (with_percent(row.change, row.path) for row in (ordered[0], ordered[-1]))
    return f"{without[0].kind} that matters most: {most}, least: {least}"
