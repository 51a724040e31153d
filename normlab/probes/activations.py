"""Follow what each norm is given: mean, variance, largest value, and features that stand out.

Over the real tokens and all features of a norm's input: `mean` and `var` of the values, `largest`
magnitude, and `outliers`, the share of features whose root mean square over tokens is more than
`threshold` times that of all values. The last is our own reading of outlier features (Dettmers et
al. 2022), free of the scale of the activations; at width D no feature can exceed sqrt(D) times.
What a recurrence gives a norm one position at a time is one input, of all positions.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.norms.base import Norm
from normlab.probes.figures import HookedProbe
from normlab.probes.sites import sites


@torch.no_grad()
def describe(
    x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"], *, threshold: float
) -> dict[str, Tensor]:
    """Return `mean`, `var`, `largest` and `outliers` of the values at real tokens."""
    with torch.autocast(x.device.type, enabled=False):
        tokens = valid.unsqueeze(-1)
        wide = x.detach().to(torch.promote_types(x.dtype, torch.float32)) * tokens
        count = tokens.sum().clamp(min=1)
        mean = wide.mean(-1).sum() / count
        by_feature = wide.square().sum((0, 1)) / count
        square = by_feature.mean()
        return {
            "mean": mean,
            "var": square - mean.square(),
            "largest": wide.abs().amax(),
            "outliers": (by_feature > threshold**2 * square).to(wide.dtype).mean(),
        }


class Activations(HookedProbe):
    """Log and average what stands at the input of each norm."""

    def __init__(self, *, every: int, threshold: float) -> None:
        super().__init__(every=every, largest=("largest",))
        self._threshold = threshold

    def attach(self, model: nn.Module) -> None:
        """Look at the input of each norm."""
        for name, norm in sites(model, Norm).items():
            look = self.by_position if norm.by_position else self._look_at
            norm.register_forward_pre_hook(look(name))

    def _look_at(self, name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            if self.watching:
                x, stream = arguments
                self.seen[name] = self.described(x, stream.real(x))

        return look

    def described(self, x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> dict[str, Tensor]:
        """Return the figures of an input."""
        return describe(x, valid, threshold=self._threshold)
