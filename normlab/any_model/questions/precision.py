"""The question of which module changes the output most if it is rounded."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.slow_questions import (
    change_for_longest_row,
    look_above,
    with_percent,
)
from normlab.any_model.surgery.ablation import quantized
from normlab.any_model.tracing.scripted import is_scripted
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import percent

ROUNDED = 0.05  # the largest harmless relative change of the output in bfloat16


@question("precision", of="module", slow=True)
@torch.no_grad()
def precision(examination: Examination) -> Finding:
    """Which module changes the output most if it is rounded to bfloat16, or to int8?

    The weights and inputs of modules are rounded, first one module at a time, then all at once. The
    value is RMS(y' - y) / RMS(y), where y is the output for the longest row, and y' the output with
    all modules in bfloat16.
    """
    modules = dict(examination.model.named_modules())
    rounded = {path: m for path, m in modules.items() if _hooked(m) and m._parameters}
    if not rounded:
        return Finding.none("no module that supports hooks has weights")
    changes = {dtype: _changes(examination, rounded, round_) for dtype, round_ in ROUNDINGS.items()}
    scripted = [path for path, m in modules.items() if is_scripted(m) and [*m.parameters()]]
    rows = [(path, *(each.by_module[path] for each in changes.values())) for path in rounded]
    table = AnswerTable(("module", *ROUNDINGS), rows)
    return look_above(_answer(changes, scripted), changes["bf16"].of_all, ROUNDED, table)


class RoundingChanges(NamedTuple):
    """How much the output changes if one module, by path, or all modules are rounded to a dtype."""

    by_module: Mapping[str, float]
    of_all: float


def _changes(
    examination: Examination, modules: Mapping[str, nn.Module], round_: Callable[[Tensor], Tensor]
) -> RoundingChanges:
    by_module = {path: _change(examination, round_, module) for path, module in modules.items()}
    return RoundingChanges(by_module, _change(examination, round_, *modules.values()))


def _change(
    examination: Examination, round_: Callable[[Tensor], Tensor], *modules: nn.Module
) -> float:
    """Return how much the output changes if the weights and inputs of modules are rounded."""

    def round_all() -> None:
        for module in modules:
            for weight in module.parameters():
                weight.copy_(round_(weight))
            module.register_forward_pre_hook(
                lambda _, *inputs: tree_map_only(Tensor, round_, inputs), with_kwargs=True
            )

    return change_for_longest_row(examination, round_all)


def _hooked(module: nn.Module) -> bool:
    """Return whether a module has no modules inside it, and supports hooks (not if scripted)."""
    return not (module._modules or is_scripted(module))


def to_bf16(x: Tensor) -> Tensor:
    """Round to bfloat16, but keep the dtype."""
    return x.bfloat16().to(x.dtype) if x.is_floating_point() else x


def to_int8(x: Tensor) -> Tensor:
    """Round to 255 levels within +-max |x|; leave vectors unchanged."""
    if x.ndim < 2 or not x.is_floating_point():
        return x
    return quantized(x, x.abs().amax(), 8)


ROUNDINGS: Mapping[str, Callable[[Tensor], Tensor]] = {"bf16": to_bf16, "int8": to_int8}


def _answer(changes: Mapping[str, RoundingChanges], scripted: Sequence[str]) -> str:
    """Describe the change by each dtype and its worst module, and what was not rounded."""
    parts: list[str] = []
    for dtype, (by_module, of_all) in changes.items():
        worst = max(by_module, key=lambda path: (by_module[path], path))
        most = with_percent(by_module[worst], worst)
        parts.append(f"{dtype} changes the output by {percent(of_all)}; worst module: {most}")
    if scripted:
        parts.append(f"not rounded, because they are scripted: {', '.join(scripted[:3])}")
    return "; ".join(parts)
