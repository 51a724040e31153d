"""What the loop asks of a model's norms, without knowing any."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Norms(Protocol):
    """The norms of the model that is trained."""

    def begin_step(self, step: int, total: int | None) -> None:
        """Take notice of a step, from 1, before its first micro-batch."""

    def penalty(self) -> Tensor | None:
        """Return a differentiable term for the summed loss of the last micro-batch, or None."""

    def commit(self) -> None:
        """Take notice that all micro-batches of the step have gone forward and backward."""

    def share_statistics(self) -> None:
        """Let processes whose norms are not synced agree on running statistics."""

    def own_statistics(self) -> dict[str, Tensor]:
        """Return a copy of the statistics that this process does not share with the others."""
        ...

    def restore_statistics(self, own: Mapping[str, Tensor]) -> None:
        """Put such a copy back in place."""
