"""The slow questions: how much an output changes if modules are rounded or left out."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.layers import NOTHING, layer_outputs, look_above
from normlab.any_model.surgery.ablation import quantized, skip
from normlab.any_model.tracing.scripted import is_scripted
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import percent, relative_change

ROUNDED = 0.05  # largest harmless relative change of the output in bfloat16


def bf16(x: Tensor) -> Tensor:
    """Round to bfloat16, but keep the dtype."""
    return x.bfloat16().to(x.dtype) if x.is_floating_point() else x


def int8(x: Tensor) -> Tensor:
    """Round to 255 levels within +-max |x|; leave vectors unchanged."""
    if x.ndim < 2 or not x.is_floating_point():
        return x
    return quantized(x, x.abs().amax(), 8)


@question("precision", of="module", slow=True)
@torch.no_grad()
def precision(examination: Examination) -> Finding:
    """Which module changes the output most if rounded to bfloat16, or to int8?

    The weights and inputs of each module are rounded, first one module at a time, then all at once.
    The value is RMS(y' - y) / RMS(y) of the longest row's output y with all modules in bfloat16.
    """
    modules = dict(examination.model.named_modules())
    leaves = {name: m for name, m in modules.items() if _hooked(m) and m._parameters}
    if not leaves:
        return Finding.none("no module that takes hooks has weights")
    alone = [
        [_change_if_rounded(examination, round_, m) for m in leaves.values()]
        for round_ in (bf16, int8)
    ]
    total = [_change_if_rounded(examination, round_, *leaves.values()) for round_ in (bf16, int8)]
    answers = []
    for kind, of_all, of_each in zip(("bf16", "int8"), total, alone, strict=True):
        worst = _shown(*max(zip(of_each, leaves, strict=True)))
        answers.append(f"{kind} changes the output by {percent(of_all)}; worst module: {worst}")
    table = AnswerTable(("module", "bf16", "int8"), [*zip(leaves, *alone, strict=True)])
    scripted = [
        name for name, module in modules.items() if is_scripted(module) and [*module.parameters()]
    ]
    if scripted:
        answers.append(f"not rounded, as they are scripted: {', '.join(scripted[:3])}")
    return look_above("; ".join(answers), total[0], ROUNDED, table)


def _hooked(module: nn.Module) -> bool:
    """Return whether a module is innermost and takes hooks, which scripted modules do not."""
    return not (module._modules or is_scripted(module))


def _shown(value: float, name: str) -> str:
    return f"{name or 'the model'} ({percent(value)})"


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
            most, least = _shown(*ends[-1]), _shown(*ends[0])
            answers.append(f"{kind} that matters most: {most}, least: {least}")
    if not rows:
        return NOTHING
    table = AnswerTable(("kind", "left out", "change"), rows)
    return look_above("; ".join(answers), max(row[2] for row in rows), torch.inf, table)


def _change(examination: Examination) -> float:
    """Run the longest row again; return how much its main output has changed."""
    y = examination.outputs(examination.lead)
    main = next(iter(y))
    return relative_change(examination.outputs(replace(examination.lead))[main], y[main])


def _change_without(examination: Examination, module: nn.Module) -> float:
    """Return how much the longest row's output changes if a module returns its first argument."""
    _ = examination.outputs(examination.lead)  # cached, as `_change` compares with it
    with examination.runner.changed(lambda: module.register_forward_hook(skip, with_kwargs=True)):
        return _change(examination)


def _change_if_rounded(
    examination: Examination, change: Callable[[Tensor], Tensor], *modules: nn.Module
) -> float:
    """Return how much the row's output changes if weights and inputs of modules are changed."""

    def change_all() -> None:
        for module in modules:
            for weight in module.parameters():
                weight.copy_(change(weight))
            module.register_forward_pre_hook(lambda _, args: tree_map_only(Tensor, change, args))

    _ = examination.outputs(examination.lead)  # cached, as `_change` compares with it
    with examination.runner.changed(change_all):
        return _change(examination)
