"""Code shared by the slow questions: the outputs of layers, and findings on values with a limit."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from normlab.any_model.batches.outputs import tensors
from normlab.any_model.questions.examination import Examination
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.relative_change import percent, relative_change

NOTHING = Finding.none("the model has nothing that this question measures")


def look_above(answer: str, value: float, limit: float, table: AnswerTable) -> Finding:
    """Return the finding on a value, with the verdict `look` if it is above the limit."""
    return Finding(
        answer,
        {"rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows]},
        table,
        verdict="fine" if value <= limit else "look",
        value=value,
        threshold=None if limit == torch.inf else limit,
    )


def layer_outputs(examination: Examination) -> dict[str, Tensor]:
    """Return the outputs of the layers for the longest row, keyed by path and in call order.

    A layer is a numbered module that has submodules and whose output has its input's shape.
    """

    def is_layer(name: str, module: nn.Module) -> bool:
        return name.rpartition(".")[2].isdigit() and bool(module._modules)

    calls, _ = examination.runner.record(examination.longest_row, keep=is_layer)
    outputs: dict[str, Tensor] = {}
    for call_ in calls:
        x, y = (next(tensors(value), None) for value in (call_.inputs, call_.output))
        if x is not None and y is not None and x.shape == y.shape:
            outputs[call_.name] = y
    return outputs


def change_for_longest_row(examination: Examination, change: Callable[[], object]) -> float:
    """Return how much the main output for the longest row changes if the model is changed."""
    y = examination.outputs(examination.longest_row)
    main = next(iter(y))
    with examination.runner.changed(change):
        return relative_change(examination.outputs(replace(examination.longest_row))[main], y[main])


def with_percent(value: float, path: str) -> str:
    """Return a module's path, followed by a value in percent."""
    return f"{path or 'the model'} ({percent(value)})"
