"""Follow the gradient by layer and by kind of parameter, before clipping.

`norm/<layer>` and `kind/<kind>` are the Euclidean norms of all gradient entries of the loss per
target token that belong there; the squares of all layers, as of all kinds, add up to the square of
the whole. By layer as in Xiong et al. 2020, figure 3; the kinds are ours.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

from normlab.probes.base import StepView
from normlab.probes.figures import FigureProbe
from normlab.probes.sites import layer, parameter_kinds


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


class Gradients(FigureProbe):
    """Log and average the gradient norm of each layer and of each kind of parameter."""

    def before_update(self, view: StepView) -> None:
        """Take the norms of the step's gradient."""
        self.take(view, gradient_norms(view.model))
