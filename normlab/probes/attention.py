"""Follow the attention weights: how spread they are, and what the softmax lets through.

Over the rows (one a real query and head) of each attention, from its queries and keys, without
dropout:

    entropy    -sum p log p over log n, with n the keys that are visible: 1 is uniform, 0 one key
    largest    the largest magnitude of a logit, q k / sqrt(K)
    saturated  share of rows whose largest weight is above `threshold`
    slope      mean of 1 - sum p^2, the trace of the softmax's Jacobian diag(p) - p p': how much a
               change of the logits can change the weights; 0 where the softmax is saturated

Rows that see one key only say nothing of the attention and are left out of entropy, saturated and
slope.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.models.attention import AttentionCore
from normlab.placements.base import Residual
from normlab.probes.figures import HookedProbe
from normlab.probes.sites import sites


@torch.no_grad()
def describe_attention(
    query: Float[Tensor, "B H P K"],
    key: Float[Tensor, "B H S K"],
    visible: Bool[Tensor, "..."] | None,
    valid: Bool[Tensor, "B P"],
    *,
    threshold: float,
) -> dict[str, Tensor]:
    """Return `entropy`, `largest`, `saturated` and `slope` over the rows of real queries."""
    with torch.autocast(query.device.type, enabled=False):
        wide = torch.promote_types(query.dtype, torch.float32)
        logits = query.to(wide) @ key.to(wide).transpose(-1, -2) / math.sqrt(query.shape[-1])
        shown = torch.ones((), dtype=torch.bool, device=logits.device)
        shown = (shown if visible is None else visible).expand(logits.shape)
        rows = valid[:, None, :].expand(logits.shape[:-1])
        hidden = ~(shown & rows.unsqueeze(-1))
        weights = logits.masked_fill(~shown, -torch.inf).softmax(-1)
        keys = shown.sum(-1)
        counted = rows & (keys > 1)
        total = counted.sum().clamp(min=1)
        spread = -torch.xlogy(weights, weights).sum(-1) / keys.clamp(min=2).log()
        return {
            "entropy": (spread * counted).sum() / total,
            "largest": logits.masked_fill(hidden, 0).abs().amax(),
            "saturated": ((weights.amax(-1) > threshold) & counted).sum() / total,
            "slope": ((1 - weights.square().sum(-1)) * counted).sum() / total,
        }


class Attention(HookedProbe):
    """Log and average the state of each attention."""

    def __init__(self, *, every: int, threshold: float) -> None:
        super().__init__(every=every, largest=("largest",))
        self._threshold = threshold
        self._queries: Bool[Tensor, "B P"] | None = None

    def attach(self, model: nn.Module) -> None:
        """Look at each attention; the residual around it says which of its queries are real."""
        cores = sites(model, AttentionCore)
        self.why_not = "" if cores else "the model has no attention"
        for name, residual in sites(model, Residual).items():
            if name in cores:
                residual.register_forward_pre_hook(self._enter)
                cores[name].register_forward_pre_hook(self._look_at(name))

    def _enter(self, _: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self.watching:
            self._queries = arguments[1].real(arguments[0])

    def _look_at(self, name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            if self.watching and self._queries is not None:
                query, key, _, visible = arguments
                self.seen[name] = describe_attention(
                    query, key, visible, self._queries, threshold=self._threshold
                )

        return look
