"""Follow what each sub-layer computes: its size, and how far its largest values stand out.

Over the real tokens and all features of the output of an attention, a feed-forward layer, a
convolution or a recurrent layer, before what comes behind it (norm, scale, dropout, residual
connection): `rms` is the root mean square, and `crest` the largest magnitude over it (the crest
factor), 1 where all values are as large. `crest/attention`, `crest/feed_forward`,
`crest/convolution` and `crest/recurrent` are the means over the sub-layers of a kind.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.probes.figures import HookedProbe, Values, all_by_site
from normlab.probes.residual import root_mean_square
from normlab.probes.sites import NO_SUBLAYERS, real_values, sublayers


@torch.no_grad()
def describe_branch(x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> dict[str, Tensor]:
    """Return `rms` and `crest` of the values at real tokens."""
    rms = root_mean_square(x, valid)
    largest = (x.detach().abs() * valid.unsqueeze(-1)).amax().to(rms.dtype)
    return {"rms": rms, "crest": largest / rms}


class Branches(HookedProbe):
    """Log and average the outputs of sub-layers."""

    def attach(self, model: nn.Module) -> None:
        """Look at the output of each sub-layer."""
        self._kinds: dict[str, str] = {}
        for site, (kind, module) in sublayers(model).items():
            self._kinds[site] = kind
            module.register_forward_hook(self._look_at(site))
        self.why_not = "" if self._kinds else NO_SUBLAYERS

    def _look_at(self, name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            if self.watching:
                self.seen[name] = describe_branch(*real_values(output, arguments))

        return look

    def figures(self, seen: Mapping[str, Any]) -> Values:
        """Return size and crest factor, whole and by site, and the latter by kind."""
        by_kind: dict[str, list[Tensor]] = {}
        for site, found in seen.items():
            by_kind.setdefault(f"crest/{self._kinds[site]}", []).append(found["crest"])
        means = {name: torch.stack(values).mean() for name, values in by_kind.items()}
        return {**all_by_site(seen), **means}
