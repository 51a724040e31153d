"""Follow a run over a change of its sequence length: how far it is thrown, and for how long.

With c the step of the change (`task.length_change.step`), L the mean loss of the `window` steps
before it and l_s(t) the mean loss of the `smooth` steps that end at t:

    loss_jump   l_s(c + smooth - 1) - L, in nats
    recovery    the least t - c + 1, t >= c + smooth - 1, with l_s(t) <= L; infinite if none
    tid_before, tid_after
                the training-inference discrepancy of the means (see `tid`), a mean over the norms
                and over the same steps before and after: how wrong running statistics become

The loss of longer sequences differs for any norm, as each token has more around it: compare with a
norm without running statistics. Claim 14.
"""

import math
import statistics
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from normlab.probes.base import Probe, Series, StepView
from normlab.probes.tid import StatisticsReader, discrepancy


class LengthChangeProbe(Probe):
    """Compare the steps before a change of the sequence length with those after."""

    def __init__(self, *, step: int | None, window: int, smooth: int, eps: float) -> None:
        """Look at every step from `window` before `step` on; at none where `step` is None."""
        super().__init__(every=1)
        if not 1 <= smooth <= window:
            raise ValueError(f"smooth: {smooth} must be from 1 to window ({window})")
        self._step = step
        self._first = math.inf if step is None else max(1, step - window)
        self._smooth = smooth
        self._eps = eps
        self._seen: dict[str, list[float]] = {"loss": [], "tid": []}
        self._series = {name: Series(seen.append) for name, seen in self._seen.items()}

    def attach(self, model: nn.Module) -> None:
        """Find the norms with running statistics."""
        self._reader = StatisticsReader(model)
        self.why_not = "task.length_change is not set" if self._step is None else ""

    def before_forward(self, step: int) -> None:
        """Keep the running statistics."""
        if step >= self._first:
            self._reader.remember()

    def before_update(self, view: StepView) -> None:
        """Take the loss and the discrepancy of the step."""
        if view.step < self._first:
            return
        self._series["loss"].append(view.loss)
        found = [discrepancy(s, eps=self._eps)["mean"] for _, s in self._reader.read()]
        if found:
            self._series["tid"].append(torch.stack(found).mean())

    def summary(self) -> dict[str, float]:
        """Return `loss_before`, `loss_jump`, `recovery` in steps, and the discrepancies.

        A run that ends before `smooth` steps after the change has none.
        """
        self._flush()
        loss_before, loss = self._halves("loss")
        if not loss_before or len(loss) < self._smooth:
            return {}
        level = statistics.fmean(loss_before)
        means = [statistics.fmean(loss[end - self._smooth : end]) for end in self._ends(loss)]
        back = (self._smooth + extra for extra, mean in enumerate(means) if mean <= level)
        figures = {
            "loss_before": level,
            "loss_jump": means[0] - level,
            "recovery": float(next(back, math.inf)),
        }
        tid_before, tid = self._halves("tid")
        if tid_before:
            figures["tid_before"] = statistics.fmean(tid_before)
            figures["tid_after"] = statistics.fmean(tid[: self._smooth])
        return figures

    def _halves(self, name: str) -> tuple[list[float], list[float]]:
        """Return what was seen before the change and after it."""
        count = 0 if self._step is None else int(self._step - self._first)
        return self._seen[name][:count], self._seen[name][count:]

    def _ends(self, values: list[float]) -> range:
        return range(self._smooth, len(values) + 1)

    def _flush(self) -> None:
        for series in self._series.values():
            series.flush()

    def state_dict(self) -> dict[str, Any]:
        """Return what was seen so far."""
        self._flush()
        return {name: list(values) for name, values in self._seen.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with what the checkpoint had seen."""
        for name, values in state.items():
            self._seen[name][:] = values
