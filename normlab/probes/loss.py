"""Loss spikes and the norm of the whole gradient, step by step.

`spikes`: let m and s be the mean and standard deviation (n - 1) of the last `window` losses, once
there are `min_history` of them. A loss above `m + threshold * s` is a spike; consecutive ones count
as one. The size of a spike is its largest loss minus the m of that step, in nats per target token.
The loss has recovered when it is no longer above the m of the step where the spike began; recovery
is the number of steps until then, or until the run ends. A loss in a spike enters the window as
`m + threshold * s`, so that a spike does not hide the next one and a loss that stays high does not
count as a spike forever. Losses that are not finite are skipped: divergence is an outcome, not a
spike. Language-model training monitors use the same rule of a rise of some standard deviations over
a moving window; capping and merging are ours.

`grad_norm`, before clipping: its mean, its maximum, and its noise, the coefficient of variation
(standard deviation over mean, n - 1) within windows of consecutive steps, averaged over windows by
length. Over a whole run it would instead measure how much the gradient shrinks in training. The
last window counts if it has at least two steps.
"""

import math
import statistics
from collections.abc import Mapping

from normlab.probes.base import Probe, StepView, Values


class LossSpikes(Probe):
    """Counts spikes of the training loss and keeps the largest size and the longest recovery.

    `threshold` is in standard deviations; lengths are in steps. Without a spike all metrics are 0.
    """

    remembered = ("_window", "_count", "_size", "_in_spike", "_level", "_away", "_recovery")

    def __init__(self, *, window: int, threshold: float, min_history: int) -> None:
        super().__init__(every=1)
        if not 2 <= min_history <= window:
            raise ValueError(
                f"min_history: {min_history} must be from 2 to window ({window}): "
                "a standard deviation needs two losses"
            )
        self._threshold, self._min_history, self._length = threshold, min_history, window
        self._window: list[float] = []
        self._count = 0
        self._size = 0.0
        self._in_spike = False
        self._level: float | None = None  # the loss to recover to
        self._away = 0  # steps since the spike began
        self._recovery = 0

    def measure(self, seen: StepView) -> Values:
        self.later({"loss": seen.loss})
        seen.log("count", lambda: self.summary()["count"])
        return {}

    def hear(self, numbers: Mapping[str, float]) -> None:
        loss = numbers["loss"]
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
        self._window = [*self._window, min(loss, limit)][-self._length :]

    def summary(self) -> dict[str, float]:
        self.flush()
        return {
            "count": float(self._count),
            "size": self._size,
            "recovery": float(self._recovery),
        }


class GradNorm(Probe):
    """Summarizes the gradient norm over a run, in windows of `window` steps.

    `nonfinite` counts norms that are not finite. Metrics with too few steps are left out.
    """

    remembered = ("_window", "_noise", "_count", "_sum", "_max", "_nonfinite")

    def __init__(self, *, window: int) -> None:
        super().__init__(every=1)
        if window < 2:
            raise ValueError(f"window: {window} must be at least 2 steps to have a spread")
        self._length = window
        self._window: list[float] = []
        self._noise: list[tuple[int, float]] = []
        self._count = 0
        self._sum = 0.0
        self._max = 0.0
        self._nonfinite = 0

    def measure(self, seen: StepView) -> Values:
        self.later({"norm": seen.grad_norm})
        return {}

    def hear(self, numbers: Mapping[str, float]) -> None:
        norm = numbers["norm"]
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
        self.flush()
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


def _variation(values: list[float]) -> float:
    mean = statistics.fmean(values)
    return statistics.stdev(values, mean) / mean if mean > 0 else 0.0
