"""A micro-batch with its counts, and the draw that determines an epoch's examples."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normlab.norms.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The tensors and counts of a micro-batch.

    Attributes:
        counts: the denominator of each summed loss, by loss name.
        tokens: number of real tokens that count towards a token budget (translation: target side).
        positions: number of positions in the batch, including padding.
        padding: number of padding positions.
    """

    counts: dict[str, int]
    tokens: int
    positions: int
    padding: int = 0

    def to(self, device: torch.device) -> Any:
        """Return the batch on a device, without waiting for it if the memory is pinned."""
        return self._with(
            lambda x: x.to(device) if isinstance(x, Tokens) else x.to(device, non_blocking=True)
        )

    def pinned(self) -> Any:
        """Return the batch in memory from which a GPU can copy it without waiting."""
        return self._with(lambda x: x.pinned() if isinstance(x, Tokens) else x.pin_memory())

    def _with(self, change: Callable[[Any], Any]) -> Any:
        """Return the batch with its tensors and tokens changed."""
        values = vars(self).items()
        changed = {n: change(x) for n, x in values if isinstance(x, Tensor | Tokens)}
        return replace(self, **changed)


class Draw(NamedTuple):
    """The seed and epoch that determine an epoch's random crops, segment pairs and masks.

    `limit` is the maximum number of tokens per example, or None for the task's setting.
    """

    seed: int
    epoch: int
    limit: int | None = None
