"""A change of the sequence length: how far the loss jumps, and how many steps it takes to recover.

With c the step of the change (`task.length_change.step`), L the mean loss of the `window` steps
before it and l_s(t) the mean loss of the `smooth` steps that end at t:

    loss_jump   l_s(c + smooth - 1) - L, in nats
    recovery    the least t - c + 1, t >= c + smooth - 1, with l_s(t) <= L; infinite if none
    tid_before, tid_after
                the training-inference discrepancy of the means (see `tid`), averaged over norms and
                over `window` steps before or `smooth` after: how wrong running statistics become

Longer sequences change the loss with any norm, as tokens have more context, so compare with a norm
without running statistics. A run that ends before `smooth` steps after the change has no metrics.
Claim 14.
"""

import math
import statistics
from collections.abc import Mapping

import torch
from torch import nn

from normlab.probes.base import Probe, StepView
from normlab.probes.statistics import StatisticsReader, discrepancy


class LengthChangeProbe(Probe):
    """Compares the steps before a change of the sequence length with the steps after it.

    It measures every step from `window` steps before `step` on; none if `step` is None.
    """

    remembered = ("_loss", "_tid")

    def __init__(self, *, step: int | None, window: int, smooth: int, eps: float) -> None:
        super().__init__(every=1)
        if not 1 <= smooth <= window:
            raise ValueError(f"smooth: {smooth} must be from 1 to window ({window})")
        self._step = step
        self._first = math.inf if step is None else max(1, step - window)
        self._smooth, self._eps = smooth, eps
        self._loss: list[float] = []
        self._tid: list[float] = []

    def attach(self, model: nn.Module) -> None:
        self._reader = StatisticsReader(model)
        self.why_not = "task.length_change is not set" if self._step is None else ""

    def before_forward(self, step: int) -> None:
        if step >= self._first:
            self._reader.remember()

    def before_update(self, view: StepView) -> None:
        if view.step >= self._first:
            found = [discrepancy(s, eps=self._eps)["mean"] for s in self._reader.read()]
            mean = {"tid": torch.stack(found).mean()} if found else {}
            self.later({"loss": view.loss, **mean})

    def hear(self, numbers: Mapping[str, float]) -> None:
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
