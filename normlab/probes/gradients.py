"""Follow the gradient by layer and by kind of parameter, before clipping.

`norm/<layer>` and `kind/<kind>` are the Euclidean norms of all gradient entries of the loss per
target token that belong there; the squares of all layers, as of all kinds, add up to the square of
the whole. By layer as in Xiong et al. 2020, figure 3; the kinds are ours. `spread` is
the largest norm of a layer of a stack over the smallest: 1 where all layers have as much.
"""

import re
from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from normlab.probes.base import StepView
from normlab.probes.figures import FigureProbe
from normlab.probes.sites import layer, parameter_kinds

_LAYER = re.compile(r"norm/[^/]+\.\d+")


def gradient_norms(model: nn.Module) -> dict[str, Tensor]:
    """Return `norm/<layer>` and `kind/<kind>` of the gradients that the model holds."""
    kinds = parameter_kinds(model)
    cells: dict[tuple[str, str], list[Tensor]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            cells[f"norm/{layer(name)}", f"kind/{kinds[name]}"].append(parameter.grad)
    squares: dict[str, list[Tensor]] = defaultdict(list)
    for groups, gradients in cells.items():
        square = torch.nn.utils.get_total_norm(gradients).double().square()
        for group in groups:
            squares[group].append(square)
    return {group: torch.stack(parts).sum().sqrt() for group, parts in squares.items()}


def spread(norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return `spread` of the norms by layer; nothing where there are not two layers."""
    layers = [norm for name, norm in norms.items() if _LAYER.fullmatch(name)]
    if len(layers) < 2:
        return {}
    together = torch.stack(layers)
    return {"spread": together.max() / together.min()}


class Gradients(FigureProbe):
    """Log and average gradient norms by layer and by kind of parameter, and how layers differ."""

    def before_update(self, view: StepView) -> None:
        """Take the norms of the step's gradient."""
        norms = gradient_norms(view.model)
        self.take(view, norms | spread(norms))
