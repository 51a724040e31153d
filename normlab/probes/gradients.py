"""Gradients by layer and by kind of parameter, and how much an update changes the weights.

`gradients` measures before clipping. `norm/<layer>` and `kind/<kind>` are Euclidean norms of the
gradient of the loss per target token, over the parameters of one layer or one kind. Summed over all
layers, or over all kinds, their squares are the squared norm of the whole gradient. Layers follow
Xiong et al. 2020, figure 3; the kinds are ours. `spread` is the largest norm of a numbered layer
divided by the smallest.

`updates` has `ratio`, which is ||w_after - w_before|| / ||w_before|| over all parameters, and
`ratio/<kind>` over the parameters of one kind. Steps at which a kind's weights are all zero are
left out of its mean. A rule of thumb for the ratio is about 1e-3.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from normlab.findings.relative_change import ratio
from normlab.probes.base import Probe, StepView, Values
from normlab.probes.sites import layer, sublayer_kinds

STEEP = 100.0
"""Growth or decay of the gradient over a stack that is reported as steep."""
_LAYER = re.compile(r"norm/[^/]+\.\d+")


def gradient_norms(model: nn.Module) -> dict[str, Tensor]:
    """Return `norm/<layer>` and `kind/<kind>` of the model's current gradients."""
    kinds = sublayer_kinds(model)
    cells: dict[tuple[str, str], list[Tensor]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            cells[f"norm/{layer(name)}", f"kind/{kinds[name]}"].append(parameter.grad)
    squares: dict[str, list[Tensor]] = defaultdict(list)
    for groups, gradients in cells.items():
        for group in groups:
            squares[group].append(_square(gradients))
    return {group: torch.stack(parts).sum().sqrt() for group, parts in squares.items()}


def gradients_by_layer(model: nn.Module) -> dict[str, float]:
    """Return the norm of the model's current gradients by layer, such as `encoder.0`."""
    norms = gradient_norms(model).items()
    return {n.removeprefix("norm/"): float(x) for n, x in norms if n.startswith("norm/")}


def by_stack(layers: Iterable[str]) -> dict[str, list[str]]:
    """Group numbered layers (`encoder.0`) by stack, in the given order."""
    stacks: dict[str, list[str]] = {}
    for name in layers:
        stack, _, number = name.rpartition(".")
        if number.isdigit():
            stacks.setdefault(stack, []).append(name)
    return stacks


def growth_by_stack(layers: Mapping[str, float]) -> dict[str, float]:
    """Return each stack's growth: its last layer's value divided by its first layer's."""
    stacks = by_stack(layers).items()
    return {stack: ratio(layers[names[-1]], layers[names[0]]) for stack, names in stacks}


def steepest(growth: Mapping[str, float]) -> float:
    """Return the factor of the largest growth or decay, or 0 if there are no stacks."""
    return max((max(factor, ratio(1.0, factor)) for factor in growth.values()), default=0.0)


class Gradients(Probe):
    """Measures gradient norms by layer and by kind of parameter, and their spread over layers."""

    def measure_step(self, view: StepView) -> Values:
        norms = gradient_norms(view.model)
        layers = [norm for name, norm in norms.items() if _LAYER.fullmatch(name)]
        if len(layers) < 2:
            return norms
        together = torch.stack(layers)
        return norms | {"spread": together.max() / together.min()}


class Updates(Probe):
    """Measures the size of updates relative to the weights."""

    def attach(self, model: nn.Module) -> None:
        kinds, groups = sublayer_kinds(model), defaultdict(list)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                groups[kinds[name]].append(parameter)
        self._groups: dict[str, list[nn.Parameter]] = dict(groups)

    def before_update(self, view: StepView) -> None:
        self._before = {
            kind: [p.detach().clone() for p in group] for kind, group in self._groups.items()
        }

    def after_update(self, view: StepView) -> None:
        moved, size = {}, {}
        for kind, group in self._groups.items():
            before = self._before.pop(kind)
            moved[kind] = _square([p.detach() - b for p, b in zip(group, before, strict=True)])
            size[kind] = _square(before)
        whole = torch.as_tensor(sum(moved.values()) / sum(size.values())).sqrt()
        ratios = {f"ratio/{kind}": (moved[kind] / size[kind]).sqrt() for kind in moved}
        self.log_and_queue(view, {"ratio": whole, **ratios})


def _square(tensors: list[Tensor]) -> Tensor:
    return nn.utils.get_total_norm(tensors).double().square()
