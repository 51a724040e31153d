"""Attention weights: how spread they are, and how much of a gradient the softmax lets through.

Over the rows (one per real query and head) of each attention, from its queries and keys, without
dropout:

    entropy    -sum p log p over log n, with n the visible keys: 1 is uniform, 0 one key
    largest    the largest magnitude of a logit, q k / sqrt(K)
    saturated  share of rows whose largest weight is above `threshold`
    slope      mean of 1 - sum p^2, the trace of the softmax's Jacobian diag(p) - p p': how much a
               change of the logits can change the weights; 0 where the softmax is saturated

Rows that see a single key are left out of entropy, saturated and slope.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.probes.base import Probe, Values
from normlab.probes.sites import Seen, places


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


class Attention(Probe):
    """Log and average the state of each attention."""

    at = ("attention",)
    largest = ("largest",)

    def __init__(self, *, every: int, threshold: float) -> None:
        super().__init__(every=every)
        self._threshold = threshold
        self._queries: Bool[Tensor, "B P"] | None = None

    def attach(self, model: nn.Module) -> None:
        super().attach(model)
        for name, (_, residual) in places(model, ("residual",)).items():
            if name in self.places:  # the residual around an attention knows its real queries
                residual.register_forward_pre_hook(self._enter)

    def _enter(self, _: nn.Module, given: tuple[Any, ...]) -> None:
        if self.watching:
            self._queries = given[1].real(given[0])

    def measure(self, seen: Seen) -> Values:
        if self._queries is None:
            return {}
        query, key, _, visible = seen.given
        return describe_attention(query, key, visible, self._queries, threshold=self._threshold)
