"""Probes of the loss and of the norm of the whole gradient at each step.

`spikes`: let m and s be the mean and standard deviation (n - 1) of the last `window` losses, once
there are at least `min_history` of them. A loss above `m + threshold * s` is in a spike, and
consecutive such losses are one spike. The size of a spike is the largest loss - m in it, in nats
per target token. The loss has recovered when it is at most the m of the step where the spike
started. The recovery is the number of steps until then, or until the run ends. A loss in a spike
enters the window as `m + threshold * s`, so that one spike does not hide the next, and a loss that
stays high is a spike only at first. Training monitors for language models also flag a rise of
several standard deviations over a moving window; capping losses and merging spikes are ours.

`grad_norm` is the mean and the maximum of the gradient's norm before clipping.

A loss or a gradient that is not finite ends the run before any probe sees it.

`length_change` measures how much a change of the sequence length raises the loss, and how many
steps it takes to recover (claim 14). Let c be the step of the change (`task.length_change.step`), L
the mean loss of the `window` steps before it, and l_s(t) the mean loss of the `smooth` steps up to
step t. Then

    loss_before  L, in nats
    loss_jump    l_s(c + smooth - 1) - L, in nats
    recovery     the smallest t - c + 1 with t >= c + smooth - 1 and l_s(t) <= L, or infinity
    tid_before   the training-inference discrepancy of the means (see `tid`), averaged over norms
                 and over the `window` steps before the change
    tid_after    the same over the `smooth` steps after it: how wrong running statistics get

Longer sequences change the loss with any norm, because tokens have more context, so compare with a
norm without running statistics. A run with fewer than `smooth` steps after the change has no
metrics.
"""

import math
import statistics
from collections.abc import Mapping

import torch
from torch import nn

from normlab.errors import UserError
from normlab.probes.base import Probe, StepView, Values
from normlab.probes.statistics import StatisticsProbe, discrepancy


class LossSpikes(Probe):
    """Counts spikes in the training loss, and records the largest size and the longest recovery.

    `window` and `min_history` are in steps, and `threshold` is in standard deviations. All metrics
    are 0 if there are no spikes.
    """

    remembered = ("_window", "_count", "_size", "_in_spike", "_level", "_away", "_recovery")

    def __init__(self, *, window: int, threshold: float, min_history: int) -> None:
        super().__init__(every=1)
        if not 2 <= min_history <= window:
            raise UserError(f"min_history={min_history} must be from 2 to window={window}")
        self._threshold, self._min_history, self._length = threshold, min_history, window
        self._window: list[float] = []
        self._count = 0.0
        self._size = 0.0
        self._in_spike = False
        self._level: float | None = None  # the loss to recover to
        self._away = 0  # steps since the spike started
        self._recovery = 0

    def measure_step(self, view: StepView) -> Values:
        self.queue({"loss": view.loss})
        view.log("count", lambda: self.summary()["count"])
        return {}

    def accumulate(self, numbers: Mapping[str, float]) -> None:
        loss = numbers["loss"]
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
        return {"count": self._count, "size": self._size, "recovery": float(self._recovery)}


class GradNorm(Probe):
    """Reports the mean and the maximum of the gradient norm over a run."""

    largest = ("max",)

    def measure_step(self, view: StepView) -> Values:
        self.queue({"mean": view.grad_norm, "max": view.grad_norm})
        return {}


class LossAtLengthChange(StatisticsProbe):
    """Compares the steps before and after a change of the sequence length at `step`.

    It measures every step from `window` steps before the change on. If `step` is None, it measures
    nothing.
    """

    remembered = ("_loss", "_tid")

    def __init__(self, *, step: int | None, window: int, smooth: int, eps: float) -> None:
        super().__init__(every=1)
        if not 1 <= smooth <= window:
            raise UserError(f"smooth={smooth} must be from 1 to window={window}")
        self._step = step
        self._first = math.inf if step is None else max(1, step - window)
        self._smooth, self._eps = smooth, eps
        self._loss: list[float] = []
        self._tid: list[float] = []

    def attach(self, model: nn.Module) -> None:
        super().attach(model)
        self.why_not = "task.length_change is not set" if self._step is None else ""

    def before_forward(self, step: int) -> None:
        if step >= self._first:
            super().before_forward(step)

    def measure_step(self, view: StepView) -> Values:
        if view.step >= self._first:
            discrepancies = [discrepancy(s, eps=self._eps)["mean"] for s in self.read()]
            mean = {"tid": torch.stack(discrepancies).mean()} if discrepancies else {}
            self.queue({"loss": view.loss, **mean})
        return {}

    def accumulate(self, numbers: Mapping[str, float]) -> None:
        self._loss.append(numbers["loss"])
        if "tid" in numbers:
            self._tid.append(numbers["tid"])

    def summary(self) -> dict[str, float]:
        self.flush()
        count = 0 if self._step is None else int(self._step - self._first)
        loss_before, loss = self._loss[:count], self._loss[count:]
        if not loss_before or len(loss) < self._smooth:
            return {}
        level = statistics.fmean(loss_before)
        ends = range(self._smooth, len(loss) + 1)
        means = [statistics.fmean(loss[end - self._smooth : end]) for end in ends]
        back = (end for end, mean in zip(ends, means, strict=True) if mean <= level)
        figures = {
            "loss_before": level,
            "loss_jump": means[0] - level,
            "recovery": float(next(back, math.inf)),
        }
        if tid_before := self._tid[:count]:
            figures["tid_before"] = statistics.fmean(tid_before)
            figures["tid_after"] = statistics.fmean(self._tid[count:][: self._smooth])
        return figures
