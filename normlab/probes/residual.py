"""Follow the residual stream through depth: its root mean square after each residual connection.

`rms/<site>` is over real tokens and features. `growth` is the last over the first of a stack (a
stack is what the site's name begins with), the mean over stacks: 1 for a stream of constant size;
at initialisation it grows like the square root of depth with Pre-LN and stays with Post-LN (Xiong
et al. 2020).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.placements.base import Residual
from normlab.probes.figures import HookedProbe, Values
from normlab.probes.sites import sites


@torch.no_grad()
def root_mean_square(x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> Float[Tensor, ""]:
    """Return the root of the mean square of the values at real tokens."""
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    by_token = wide.square().mean(-1) * valid
    return (by_token.sum() / valid.sum().clamp(min=1)).sqrt()


class ResidualStream(HookedProbe):
    """Log and average the size of the residual stream by depth."""

    def attach(self, model: nn.Module) -> None:
        """Look at the output of each residual connection."""
        residuals = sites(model, Residual)
        self.why_not = "" if residuals else "the model has no residual sub-layers"
        for name, residual in residuals.items():
            residual.register_forward_hook(self._look_at(name, residual.streams))

    def _look_at(
        self, name: str, streams: int
    ) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
            if self.watching:
                x = output.chunk(streams, dim=-1)[0]
                self.seen[name] = root_mean_square(x, arguments[1].real(x))

        return look

    def figures(self, seen: Mapping[str, Tensor]) -> Values:
        """Return the size by site, and its growth."""
        rms = {f"rms/{name}": value for name, value in seen.items()}
        return {"growth": _growth(seen), **rms} if seen else {}


def _growth(seen: Mapping[str, Tensor]) -> Tensor:
    stacks: dict[str, list[Tensor]] = {}
    for name, value in seen.items():
        stacks.setdefault(name.split(".")[0], []).append(value)
    return torch.stack([values[-1] / values[0] for values in stacks.values()]).mean()
