"""Count loss spikes: sudden rises of the training loss out of its recent noise.

Definition. Let m and s be mean and standard deviation (n - 1) of the last `window` losses, once
there are `min_history` of them. A loss above `m + threshold * s` is out of the noise; consecutive
ones are one spike. Its size is its largest loss minus the m of that step, in nats per target token.
It is recovered from at the first loss that is not above the m of the step where it began; the
recovery is the number of steps until then, or until the run's end.
A loss out of the noise enters the window as `m + threshold * s`, so that one spike neither hides
the next nor keeps a loss that stays high a spike for ever. Losses that are not finite are left out:
divergence is an outcome, not a spike.

The usual rule of a rise of some standard deviations over a moving window, as language-model
training monitors have it; capping and merging are ours.
"""

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

from normlab.probes.base import Probe, Series, StepView


class LossSpikes(Probe):
    """Count spikes of the training loss; keep the size of the largest and the longest recovery."""

    def __init__(self, *, window: int, threshold: float, min_history: int) -> None:
        """Look at every step; `threshold` is in standard deviations, the lengths in steps."""
        super().__init__(every=1)
        if not 2 <= min_history <= window:
            raise ValueError(
                f"min_history: {min_history} must be from 2 to window ({window}): "
                "a standard deviation needs two losses"
            )
        self._threshold = threshold
        self._min_history = min_history
        self._window: deque[float] = deque(maxlen=window)
        self._losses = Series(self._take)
        self._count = 0
        self._size = 0.0
        self._in_spike = False
        self._level: float | None = None  # to come back to
        self._away = 0  # steps since the loss left it
        self._recovery = 0

    def after_update(self, view: StepView) -> None:
        """Take the loss of the step."""
        self._losses.append(view.loss)
        view.log("count", self._counted)

    def _counted(self) -> float:
        self._losses.flush()
        return float(self._count)

    def _take(self, loss: float) -> None:
        if not math.isfinite(loss):
            return
        if len(self._window) < self._min_history:
            self._window.append(loss)
            return
        mean = statistics.fmean(self._window)
        limit = mean + self._threshold * statistics.stdev(self._window, mean)
        above = loss > limit
        if self._level is None:
            self._level, self._away = (mean, 0) if above else (None, 0)
        else:
            self._away += 1
            self._recovery = max(self._recovery, self._away)
            self._level = self._level if loss > self._level else None
        self._count += above and not self._in_spike
        self._size = max(self._size, loss - mean) if above else self._size
        self._in_spike = above
        self._window.append(min(loss, limit))

    def summary(self) -> dict[str, float]:
        """Return `count`, `size` of the largest in nats per token, longest `recovery` in steps.

        All are 0 without a spike.
        """
        return {
            "count": self._counted(),
            "size": self._size,
            "recovery": float(self._recovery),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the window and the figures so far."""
        self._losses.flush()
        return {
            "window": list(self._window),
            "count": self._count,
            "size": self._size,
            "in_spike": self._in_spike,
            "level": self._level,
            "away": self._away,
            "recovery": self._recovery,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the window and the figures of the checkpoint."""
        self._window.clear()
        self._window.extend(state["window"])
        self._count, self._size = state["count"], state["size"]
        self._in_spike = state["in_spike"]
        self._level, self._away = state["level"], state["away"]
        self._recovery = state["recovery"]
