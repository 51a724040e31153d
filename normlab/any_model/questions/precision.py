"""The question of which module changes the output most if it is rounded."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.slow_questions import change_of_lead, look_above, with_percent
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
    leaves = {name: m for name, m in modules.items() if _hooked(m) and m._parameters}
    if not leaves:
        return Finding.none("no module that supports hooks has weights")
    answers = []
    changes = {
        kind: {name: _change_if_rounded(examination, round_, m) for name, m in leaves.items()}
        for kind, round_ in ROUNDINGS.items()
    }
    of_all = {
        kind: _change_if_rounded(examination, round_, *leaves.values())
        for kind, round_ in ROUNDINGS.items()
    }
    for kind, total in of_all.items():
        worst = max(leaves, key=lambda name: (changes[kind][name], name))
        most = with_percent(changes[kind][worst], worst)
        answers.append(f"{kind} changes the output by {percent(total)}; worst module: {most}")
    rows = [(name, *(by_module[name] for by_module in changes.values())) for name in leaves]
    scripted = [
        name for name, module in modules.items() if is_scripted(module) and [*module.parameters()]
    ]
    if scripted:
        answers.append(f"not rounded, because they are scripted: {', '.join(scripted[:3])}")
    table = AnswerTable(("module", *ROUNDINGS), rows)
    return look_above("; ".join(answers), of_all["bf16"], ROUNDED, table)


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


def _change_if_rounded(
    examination: Examination, change: Callable[[Tensor], Tensor], *modules: nn.Module
) -> float:
    """Return how much the output changes if `change` is applied to modules' weights and inputs."""

    def change_all() -> None:
        for module in modules:
            for weight in module.parameters():
                weight.copy_(change(weight))
            module.register_forward_pre_hook(
                lambda _, *inputs: tree_map_only(Tensor, change, inputs), with_kwargs=True
            )

    return change_of_lead(examination, change_all)
