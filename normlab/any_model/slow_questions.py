"""The questions that `checks="all"` adds: precision, depth, extreme values, and ablations."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from normlab.any_model.examination import Examination
from normlab.any_model.example import call, first_line, run
from normlab.any_model.finding import AnswerTable, Finding, question
from normlab.any_model.movement import moved, over, percent
from normlab.any_model.outputs import tensors
from normlab.any_model.restore import unchanged
from normlab.any_model.scripted import is_scripted
from normlab.probes.activations import SINK, SINK_KEYS, SINK_QUERIES, describe
from normlab.probes.gradients import gradient_norms

ROUNDED = 0.05  # largest harmless relative change of the output in bfloat16
GROWTH = 100.0  # growth or decay of the gradient from the first to the last layer
OUTLIER = 6.0  # a feature's RMS relative to the RMS of all features
MASSIVE, TIMES = 100.0, 1000.0  # magnitude, and its ratio to the median magnitude
FEWEST = 8  # positions needed before a channel can be called dead


def bf16(x: Tensor) -> Tensor:
    """Round to bfloat16, but keep the dtype."""
    return x.bfloat16().to(x.dtype) if x.is_floating_point() else x


def int8(x: Tensor) -> Tensor:
    """Round to 255 levels within +-max |x|; leave vectors unchanged."""
    if x.ndim < 2 or not x.is_floating_point():
        return x
    step = (x.abs().amax() / 127).clamp(min=torch.finfo(x.dtype).tiny)
    return (x / step).round().clamp(-127, 127) * step


@question("precision", slow=True)
@torch.no_grad()
def precision(about: Examination) -> Finding:
    """Which module changes the output most if rounded to bfloat16, or to int8?

    The weights and inputs of each module are rounded, first one module at a time, then all at once.
    The value is RMS(y' - y) / RMS(y) of the longest row's output y with all modules in bfloat16.
    """
    modules = dict(about.model.named_modules())
    leaves = {name: m for name, m in modules.items() if _hooked(m) and m._parameters}
    if not leaves:
        return Finding.none("no module that takes hooks has weights")
    alone = [[_rounded(about, round_, m) for m in leaves.values()] for round_ in (bf16, int8)]
    total = [_rounded(about, round_, *leaves.values()) for round_ in (bf16, int8)]
    answers = []
    for kind, moved_by, each in zip(("bf16", "int8"), total, alone, strict=True):
        worst = _shown(*max(zip(each, leaves, strict=True)))
        answers.append(f"{kind} changes the output by {percent(moved_by)}; worst module: {worst}")
    table = AnswerTable(("module", "bf16", "int8"), [*zip(leaves, *alone, strict=True)])
    scripted = [
        name for name, module in modules.items() if is_scripted(module) and [*module.parameters()]
    ]
    if scripted:
        answers.append(f"not rounded, as they are scripted: {', '.join(scripted[:3])}")
    return _finding(answers, total[0], ROUNDED, table)


def _hooked(module: nn.Module) -> bool:
    """Return whether a module is innermost and takes hooks, which scripted modules do not."""
    return not (module._modules or is_scripted(module))


def _shown(value: float, name: str) -> str:
    return f"{name or 'the model'} ({percent(value)})"


@question("worth", slow=True)
@torch.no_grad()
def worth(about: Examination) -> Finding:
    """How much does the output change without each layer, and without each norm?

    A layer is a numbered module with submodules whose output has its input's shape. Layers and
    norms are replaced by the identity, one at a time. The value is the largest RMS(y' - y) / RMS(y)
    of the longest row.
    """
    modules, rows, answers = dict(about.model.named_modules()), [], []
    for kind, names in (("layer", _layers(about)), ("norm", [norm.name for norm in about.norms])):
        parts = {name: modules[name] for name in names if name in modules}
        movements = {path: _moved_without(about, module) for path, module in parts.items()}
        rows += [(kind, *pair) for pair in movements.items()]
        ends = sorted((value, name) for name, value in movements.items())
        if ends:
            most, least = _shown(*ends[-1]), _shown(*ends[0])
            answers.append(f"{kind} that matters most: {most}, least: {least}")
    value = max((row[2] for row in rows), default=0.0)
    return _finding(answers, value, torch.inf, AnswerTable(("kind", "left out", "change"), rows))


@question("depth", slow=True)
def depth(about: Examination) -> Finding:
    """How does the gradient grow from the first to the last layer?

    The loss is sum(y cos(y)) of the longest row's output y, with the cosine detached, since no norm
    makes this loss constant. A layer's gradient norm is taken over all its parameters.
    """
    with unchanged(about.model), torch.enable_grad():
        about.model.requires_grad_(True).zero_grad()
        try:
            y = next(iter(run(about.model, about.lead, about.runner.forward).values()))
            (y * y.detach().cos()).sum().backward()
        except RuntimeError as error:  # some layers have no backward pass in eval mode
            return Finding.none(f"no gradient: {first_line(error)}")
        gradients = {name: float(norm) for name, norm in gradient_norms(about.model).items()}
    layers = {n.removeprefix("norm/"): v for n, v in gradients.items() if n.startswith("norm/")}
    stacks: dict[str, list[float]] = {}
    for name, norm in layers.items():
        stack, _, number = name.rpartition(".")
        if number.isdigit():
            stacks.setdefault(stack, []).append(norm)
    growth = {stack: over(each[-1], each[0]) for stack, each in stacks.items()}
    answers = [
        f"gradient x {v:.2g} from the first to the last layer{f' of {n}' * bool(n)}"
        for n, v in growth.items()
    ]
    value = max((max(each, over(1.0, each)) for each in growth.values()), default=0.0)
    return _finding(answers, value, GROWTH, AnswerTable(("layer", "gradient"), [*layers.items()]))


@question("channels", slow=True)
@torch.no_grad()
def channels(about: Examination) -> Finding:
    """Do layers output outlier features, dead channels, or massive activations?

    For each layer's output for the longest row: the share of features whose RMS exceeds 6 times the
    RMS of all features (outliers), the share of features that are constant over positions (dead),
    and the largest magnitude divided by the median magnitude. A value is massive if it is above 100
    and this ratio is above 1000 (Sun et al. 2024).
    """
    rows = list[tuple[Any, ...]]()
    for name, y in _layers(about).items():
        first = y.ndim == 4 or (y.ndim == 3 and y.shape[2] == about.example.length != y.shape[1])
        x = (y.flatten(2).mT if first else y.reshape(1, -1, y.shape[-1])).double()
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        described = describe(x, real, threshold=OUTLIER)
        dead = (x == x[:, :1]).all(1).double().mean() * (x.shape[1] >= FEWEST)
        shown = (described["outliers"], dead, described["largest"], described["over_median"])
        rows.append((name, *map(float, shown)))
    worst = max(rows, key=lambda row: row[4], default=("", 0.0, 0.0, 0.0, 0.0))
    outliers, dead = (percent(max((row[i] for row in rows), default=0.0)) for i in (1, 2))
    answers = [
        f"the largest magnitude is {worst[3]:.3g}, {worst[4]:.3g} times the median, in {worst[0]}",
        f"in the worst layer {outliers} of features are outliers, {dead} of channels dead",
    ]
    table = AnswerTable(("layer", "outliers", "dead", "largest", "times the median"), rows)
    limit = TIMES if worst[3] > MASSIVE else torch.inf
    return _finding(answers if rows else [], worst[4], limit, table)


@question("sinks", slow=True)
@torch.no_grad()
def sinks(about: Examination) -> Finding:
    """How many attention heads give most of their attention to the first token?

    A head is a sink if the longest row's first token has a mean weight above 0.3 over the first 64
    queries, or over all queries without a causal mask (Gu et al. 2025). Needs 16 tokens, and a
    model of transformers that returns `attentions`.
    """
    model: Any = about.model
    row = about.lead
    if not hasattr(model, "set_attn_implementation") or about.example.length < SINK_KEYS:
        return Finding.none(f"needs {SINK_KEYS} tokens and a model that returns its attentions")
    former = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
        asking = replace(row, values={**row.values, "output_attentions": True})
        attentions = getattr(call(model, asking, about.runner.forward), "attentions", None) or ()
    finally:
        model.set_attn_implementation(former)
    weights = [each[0] for each in attentions if each is not None]
    causal = not any(bool(each.triu(1).any()) for each in weights)
    first = [each[:, : SINK_QUERIES if causal else None, 0].mean(-1) for each in weights]
    rows = [(n, head, w) for n, each in enumerate(first) for head, w in enumerate(each.tolist())]
    share = sum(row[2] > SINK for row in rows) / max(len(rows), 1)
    answers = [f"{percent(share)} of {len(rows)} heads attend mostly to the first token"]
    table = AnswerTable(("layer", "head", "first token"), rows)
    return _finding(answers if rows else [], share, torch.inf, table)


def _finding(answers: list[str], value: float, limit: float, table: AnswerTable) -> Finding:
    """Return the finding, with the verdict `look` if the value is above the limit."""
    if not answers:
        return Finding.none("the model has nothing that this question measures")
    verdict = "fine" if value <= limit else "look"
    threshold = None if limit == torch.inf else limit
    values = {"rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows]}
    words = "; ".join(answers)
    return Finding(words, values, table, verdict=verdict, value=value, threshold=threshold)


def _moved(about: Examination) -> float:
    """Run the longest row again; return how much its main output has changed."""
    y = about.outputs(about.lead)
    main = next(iter(y))
    return moved(about.outputs(replace(about.lead))[main], y[main])


def _moved_without(about: Examination, module: nn.Module) -> float:
    """Return how much the longest row's output changes if a module returns its first argument."""

    def skip(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], y: Any) -> Any:
        x = args[0] if args else next(iter(kwargs.values()))
        return (x, *y[1:]) if isinstance(y, tuple) else x

    about.outputs(about.lead)  # cache the original output, with which `_moved` compares
    with about.runner.changed(lambda: module.register_forward_hook(skip, with_kwargs=True)):
        return _moved(about)


def _rounded(about: Examination, change: Callable[[Tensor], Tensor], *modules: nn.Module) -> float:
    """Return how much the row's output changes if weights and inputs of modules are changed."""

    def change_all() -> None:
        for module in modules:
            for weight in module.parameters():
                weight.copy_(change(weight))
            module.register_forward_pre_hook(lambda _, args: tree_map_only(Tensor, change, args))

    about.outputs(about.lead)  # cache the original output, with which `_moved` compares
    with about.runner.changed(change_all):
        return _moved(about)


def _layers(about: Examination) -> dict[str, Tensor]:
    """Return the layers' outputs for the longest row by name, in the order of the calls."""

    def is_layer(name: str, module: nn.Module) -> bool:
        return name.rpartition(".")[2].isdigit() and bool(module._modules)

    calls, _ = about.runner.record(about.lead, keep=is_layer)
    outputs: dict[str, Tensor] = {}
    for each in calls:
        x, y = (next(tensors(value), None) for value in (each.inputs, each.output))
        if x is not None and y is not None and x.shape == y.shape:
            outputs[each.name] = y
    return outputs
