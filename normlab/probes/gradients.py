"""Probes of gradients by layer and by kind of parameter, and of the size of updates.

`gradients` measures the gradient of the loss per target token, before clipping. `norm/<layer>` and
`kind/<kind>` are its Euclidean norms over the parameters of one layer (as in Xiong et al. 2020,
figure 3) or of one kind. Over all layers, or over all kinds, their squares add up to the squared
norm of the whole gradient. `spread` is the largest norm of a numbered layer divided by the
smallest.

`updates` measures `ratio`, which is ||w_after - w_before|| / ||w_before|| over all parameters, and
`ratio/<kind>` over the parameters of one kind. Steps at which all weights of a kind are zero are
left out of its mean. As a rule of thumb, the ratio should be about 1e-3.
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
"""The smallest factor of growth or decay over a stack that is reported as steep."""
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
    """Return the norm of the model's current gradient in each layer, such as `encoder.0`."""
    norms = gradient_norms(model).items()
    return {n.removeprefix("norm/"): float(x) for n, x in norms if n.startswith("norm/")}


def by_stack(layers: Iterable[str]) -> dict[str, list[str]]:
    """Group the numbered layers, such as `encoder.0`, by stack, and keep their order."""
    stacks: dict[str, list[str]] = {}
    for name in layers:
        stack, _, number = name.rpartition(".")
        if number.isdigit():
            stacks.setdefault(stack, []).append(name)
    return stacks


def growth_by_stack(layers: Mapping[str, float]) -> dict[str, float]:
    """Return the value of each stack's last layer divided by that of its first layer."""
    stacks = by_stack(layers).items()
    return {stack: ratio(layers[names[-1]], layers[names[0]]) for stack, names in stacks}


def steepest(growth: Mapping[str, float]) -> float:
    """Return the largest factor of growth or decay over a stack, or 0 if there are no stacks."""
    return max((max(factor, ratio(1.0, factor)) for factor in growth.values()), default=0.0)


class Gradients(Probe):
    """Measures the gradient's norms by layer and by kind of parameter, and their spread."""

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
