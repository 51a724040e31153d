"""Follow the norm of the whole gradient, before clipping: its mean, its largest, its noise.

The noise is the coefficient of variation (standard deviation over mean, n - 1) inside windows of
consecutive steps, averaged over the windows by their length: over a whole run it would measure how
much the gradient shrinks in training instead. A last window counts if it has two steps.
"""

import math
import statistics
from collections.abc import Mapping
from typing import Any

from normlab.probes.base import Probe, Series, StepView


class GradNorm(Probe):
    """Summarise the gradient norm over a run."""

    def __init__(self, *, window: int) -> None:
        """Look at every step; `window` is in steps."""
        super().__init__(every=1)
        if window < 2:
            raise ValueError(f"window: {window} must be at least 2 steps to have a spread")
        self._length = window
        self._norms = Series(self._take)
        self._window: list[float] = []
        self._noise: list[tuple[int, float]] = []
        self._count = 0
        self._sum = 0.0
        self._max = 0.0
        self._nonfinite = 0

    def before_update(self, view: StepView) -> None:
        """Take the gradient norm of the step."""
        self._norms.append(view.grad_norm)

    def _take(self, norm: float) -> None:
        if not math.isfinite(norm):
            self._nonfinite += 1
            return
        self._count += 1
        self._sum += norm
        self._max = max(self._max, norm)
        self._window.append(norm)
        if len(self._window) == self._length:
            self._noise.append((self._length, _variation(self._window)))
            self._window = []

    def summary(self) -> dict[str, float]:
        """Return `mean`, `max`, `noise` of the finite norms and the count of the `nonfinite`.

        A figure that has too few steps is left out.
        """
        self._norms.flush()
        figures = {"nonfinite": float(self._nonfinite)}
        if self._count:
            figures |= {"mean": self._sum / self._count, "max": self._max}
        noise = list(self._noise)
        if len(self._window) > 1:
            noise.append((len(self._window), _variation(self._window)))
        if noise:
            total = sum(length for length, _ in noise)
            figures["noise"] = sum(length * value for length, value in noise) / total
        return figures

    def state_dict(self) -> dict[str, Any]:
        """Return the sums, the finished windows and the open one."""
        self._norms.flush()
        return {
            "window": list(self._window),
            "noise": [list(pair) for pair in self._noise],
            "count": self._count,
            "sum": self._sum,
            "max": self._max,
            "nonfinite": self._nonfinite,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the sums and windows of the checkpoint."""
        self._window = list(state["window"])
        self._noise = [(length, value) for length, value in state["noise"]]
        self._count, self._sum = state["count"], state["sum"]
        self._max, self._nonfinite = state["max"], state["nonfinite"]


def _variation(values: list[float]) -> float:
    mean = statistics.fmean(values)
    return statistics.stdev(values, mean) / mean if mean > 0 else 0.0
