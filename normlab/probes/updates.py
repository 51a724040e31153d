"""Follow how far an update moves the weights: ||w_after - w_before|| / ||w_before||.

`ratio` is over all parameters, `ratio/<kind>` over those of a kind. A kind whose weights are all
zero has no ratio and is left out of the mean. Values around 1e-3 are the usual rule of thumb.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

from normlab.probes.base import StepView
from normlab.probes.figures import FigureProbe
from normlab.probes.sites import parameter_kinds


class Updates(FigureProbe):
    """Log and average the ratio of update to weight."""

    def __init__(self, *, every: int) -> None:
        super().__init__(every=every)
        self._groups: dict[str, list[nn.Parameter]] = {}
        self._before: dict[str, list[Tensor]] = {}

    def attach(self, model: nn.Module) -> None:
        """Sort the parameters by kind."""
        kinds, groups = parameter_kinds(model), defaultdict(list)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                groups[kinds[name]].append(parameter)
        self._groups = dict(groups)

    def before_update(self, view: StepView) -> None:
        """Keep the weights."""
        self._before = {
            kind: [p.detach().clone() for p in group] for kind, group in self._groups.items()
        }

    def after_update(self, view: StepView) -> None:
        """Compare the weights with those kept."""
        moved, size = {}, {}
        for kind, group in self._groups.items():
            before = self._before[kind]
            moved[kind] = _square([p.detach() - b for p, b in zip(group, before, strict=True)])
            size[kind] = _square(before)
        self._before = {}
        whole = sum(moved.values()) / sum(size.values())
        ratios = {f"ratio/{kind}": (moved[kind] / size[kind]).sqrt() for kind in moved}
        self.take(view, {"ratio": torch.as_tensor(whole).sqrt(), **ratios})


def _square(tensors: list[Tensor]) -> Tensor:
    return torch.nn.utils.get_total_norm(tensors).double().square()
