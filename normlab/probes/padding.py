"""Follow the share of padding in the training batches, which masked norms must not see.

Batch norm's statistics depend on how padding is treated, so how much there was belongs to a
run. Rows have it from the trainer already.
"""

from collections.abc import Mapping
from typing import Any

from normlab.probes.base import Probe, StepView


class Padding(Probe):
    """Average the padding share over the steps and keep the largest."""

    def __init__(self) -> None:
        """Look at every step: the share is a number on the host already."""
        super().__init__(every=1)
        self._count = 0
        self._sum = 0.0
        self._max = 0.0

    def before_update(self, view: StepView) -> None:
        """Take the padding share of the step's batch."""
        self._count += 1
        self._sum += view.padding_share
        self._max = max(self._max, view.padding_share)

    def summary(self) -> dict[str, float]:
        """Return the mean `share` of padding over the steps, from 0 to 1, and the `max`."""
        return {"share": self._sum / self._count, "max": self._max} if self._count else {}

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far."""
        return {"count": self._count, "sum": self._sum, "max": self._max}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the sums of the checkpoint."""
        self._count, self._sum, self._max = state["count"], state["sum"], state["max"]
