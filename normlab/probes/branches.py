"""Follow what each sub-layer adds to the stream: its size, and how widely its values range.

Over the real tokens and all features of a sub-layer's output: `rms` is the root mean square and
`range` the largest magnitude over it, 1 where all values are as large. `range/attention` and
`range/feed_forward` are the means over the sub-layers of a kind. The measure is ours, for what is
said of attention's outputs: that they range widely.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.models.attention import CrossAttention, SelfAttention
from normlab.models.feed_forward import FeedForward
from normlab.probes.figures import HookedProbe, Values, all_by_site
from normlab.probes.residual import root_mean_square
from normlab.probes.sites import sites

_KINDS = {SelfAttention: "attention", CrossAttention: "attention", FeedForward: "feed_forward"}


@torch.no_grad()
def describe_branch(x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> dict[str, Tensor]:
    """Return `rms` and `range` of the values at real tokens."""
    rms = root_mean_square(x, valid)
    largest = (x.detach().abs() * valid.unsqueeze(-1)).amax().to(rms.dtype)
    return {"rms": rms, "range": largest / rms}


class Branches(HookedProbe):
    """Log and average the outputs of attentions and feed-forward layers."""

    def attach(self, model: nn.Module) -> None:
        """Look at the output of each sub-layer."""
        self._kinds: dict[str, list[str]] = {}
        for kind, name in _KINDS.items():
            found = sites(model, kind)
            self._kinds.setdefault(name, []).extend(found)
            for site, module in found.items():
                module.register_forward_hook(self._look_at(site))

    def _look_at(self, name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
            if self.watching:
                self.seen[name] = describe_branch(output, arguments[1].real(output))

        return look

    def figures(self, seen: Mapping[str, Any]) -> Values:
        """Return size and range, whole, by site, and the range by kind."""
        found = {
            kind: torch.stack([seen[site]["range"] for site in names if site in seen])
            for kind, names in self._kinds.items()
            if any(site in seen for site in names)
        }
        by_kind = {f"range/{kind}": values.mean() for kind, values in found.items()}
        return {**all_by_site(seen), **by_kind}
