"""Follow how far the inputs of layers move between two looks: the internal covariate shift.

Ioffe and Szegedy 2015 name so the change of the distribution of a layer's inputs that comes of
training the layers before it. What is looked at is what each attention, feed-forward layer,
convolution and recurrent layer is given, over the real tokens of the batch, and within the last
what its norms are given, or would be: its products and an LSTM's cell, over all positions. The
measures are ours, both free of the scale of the activations, sums over the features:

    mean       of (m' - m)^2 over that of s^2, with m the means and s the deviations of a look
    deviation  of (s' - s)^2 over that of s^2

The batches of two looks differ, too: of n independent tokens `mean` is about 2 / n without any
drift, so looks lie some updates apart.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.probes.figures import HookedProbe, Values, all_by_site
from normlab.probes.sites import NO_SUBLAYERS, real_values, recurrent_norms, sublayers


@torch.no_grad()
def moments(x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> Float[Tensor, "2 D"]:
    """Return mean and deviation of each feature over the real tokens."""
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    tokens = valid.unsqueeze(-1).to(wide.dtype)
    count = tokens.sum().clamp(min=1)
    mean = (wide * tokens).sum((0, 1)) / count
    square = ((wide - mean).square() * tokens).sum((0, 1)) / count
    return torch.stack([mean, square.sqrt()]).double()


def drift(before: Float[Tensor, "2 D"], now: Float[Tensor, "2 D"]) -> dict[str, Tensor]:
    """Return `mean` and `deviation` of the move from one look to the next."""
    scale = now[1].square().sum()
    mean, deviation = (now - before.to(now)).square().sum(1) / scale
    return {"mean": mean, "deviation": deviation}


class Drift(HookedProbe):
    """Log and average how far the inputs of layers moved since the look before."""

    def __init__(self, *, every: int) -> None:
        super().__init__(every=every)
        self._before: dict[str, Float[Tensor, "2 D"]] = {}

    def attach(self, model: nn.Module) -> None:
        """Look at what each sub-layer is given, and the norms of a recurrent one."""
        found = sublayers(model)
        for name, (_, module) in found.items():
            module.register_forward_pre_hook(self._look_at(name))
        for name, norm in recurrent_norms(model).items():
            norm.register_forward_pre_hook(self.by_position(name))
        self.why_not = "" if found else NO_SUBLAYERS

    def _look_at(self, name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            if self.watching:
                self.seen[name] = self.described(*real_values(arguments[0], arguments))

        return look

    def described(self, x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> Tensor:
        """Return the moments of an input."""
        return moments(x, valid)

    def figures(self, seen: Mapping[str, Tensor]) -> Values:
        """Return the moves since the last look, whole and by site."""
        before, self._before = self._before, dict(seen)
        return all_by_site(
            {name: drift(before[name], seen[name]) for name in seen if name in before}
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the figures so far and the moments of the last look."""
        before = {name: values.tolist() for name, values in self._before.items()}
        return {**super().state_dict(), "before": before}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        super().load_state_dict(state)
        self._before = {
            name: torch.tensor(values, dtype=torch.float64)
            for name, values in state["before"].items()
        }
