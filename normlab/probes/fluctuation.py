"""Follow how batch statistics fluctuate from batch to batch.

The distances between a batch's statistics and the running ones, which Shen et al. 2020 (PowerNorm)
plot over training; here the running ones are those before the batch, and d is the features' number:

    mean = (1/d) ||mu_B - mu||        var = (1/d) ||sigma_B^2 - sigma^2||

and, within windows of `window` observed batches, the variance between batches against that within:

    ratio  = sum_c Var_B(mu_B) / sum_c mean_B(sigma_B^2)
    excess = ratio * n

with n the values an entry is pooled from. Were the tokens of a batch independent draws, the mean of
n of them would have variance sigma^2 / n and `excess` would be 1; above 1, tokens of a batch are
alike and its statistics are worth n / excess tokens. The ratio is left out for norms with several
rows of statistics, whose positions come and go, and until a window is full.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normlab.probes.base import StepView
from normlab.probes.figures import FigureProbe, Values, by_site
from normlab.probes.tid import NO_RUNNING, Statistics, StatisticsReader


class Fluctuation(FigureProbe):
    """Log and average the fluctuation of batch statistics."""

    def __init__(self, *, every: int, window: int) -> None:
        super().__init__(every=every)
        if window < 2:
            raise ValueError(f"window: {window} must be at least 2 batches to have a variance")
        self._length = window
        self._windows: dict[str, Window] = {}

    def attach(self, model: nn.Module) -> None:
        """Find the norms with running statistics."""
        self._reader = StatisticsReader(model)
        self.why_not = "" if self._reader.norms else NO_RUNNING

    def before_forward(self, step: int) -> None:
        """Keep the running statistics."""
        self._reader.remember()

    def before_update(self, view: StepView) -> None:
        """Take the distances of the step, and the ratios where a window is full."""
        found = dict(self._reader.read())
        distances: Values = {}
        for figure, distance in (("mean", mean_distance), ("var", var_distance)):
            values = {name: distance(statistics) for name, statistics in found.items()}
            distances = {**distances, **by_site(figure, values)}
        self.take(view, distances)
        for name, statistics in found.items():
            if len(self._reader.norms[name].running_moments()[0]) == 1:
                self._windows.setdefault(name, Window()).add(statistics)
        full = {n: w.close() for n, w in self._windows.items() if w.batches == self._length}
        ratios = {name: ratio for name, (ratio, _) in full.items()}
        excess = {name: ratio * count for name, (ratio, count) in full.items()}
        self.take(view, {**by_site("ratio", ratios), **by_site("excess", excess)})

    def state_dict(self) -> dict[str, Any]:
        """Return the figures so far and the open windows."""
        windows = {name: window.state_dict() for name, window in self._windows.items()}
        return {**super().state_dict(), "windows": windows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the figures and windows of a checkpoint."""
        super().load_state_dict(state)
        self._windows = {name: Window(**window) for name, window in state["windows"].items()}


def mean_distance(statistics: Statistics) -> Tensor:
    """Return (1/d) ||mu_B - mu||."""
    gap = statistics.mean - statistics.mean_before
    return torch.linalg.vector_norm(gap) / len(gap)


def var_distance(statistics: Statistics) -> Tensor:
    """Return (1/d) ||sigma_B^2 - sigma^2||."""
    gap = statistics.var - statistics.var_before
    return torch.linalg.vector_norm(gap) / len(gap)


class Window:
    """The batch means of one norm over consecutive looks: count, mean and squares about it."""

    def __init__(
        self,
        *,
        batches: int = 0,
        middle: list[float] | None = None,
        squares: list[float] | None = None,
        within: float = 0.0,
        count: float = 0.0,
    ) -> None:
        self.batches = batches
        self._middle = None if middle is None else torch.tensor(middle, dtype=torch.float64)
        self._squares = None if squares is None else torch.tensor(squares, dtype=torch.float64)
        self._within = torch.tensor(within, dtype=torch.float64)
        self._count = torch.tensor(count, dtype=torch.float64)

    def add(self, statistics: Statistics) -> None:
        """Let a batch in (Welford 1962, so that nothing cancels)."""
        mean = statistics.mean.double()
        if self._middle is None or self._squares is None:
            self._middle, self._squares = torch.zeros_like(mean), torch.zeros_like(mean)
        self.batches += 1
        gap = mean - self._middle.to(mean.device)
        self._middle = self._middle.to(mean.device) + gap / self.batches
        self._squares = self._squares.to(mean.device) + gap * (mean - self._middle)
        self._within = self._within.to(mean.device) + statistics.var.double().sum()
        self._count = self._count.to(mean.device) + statistics.count

    def close(self) -> tuple[Tensor, Tensor]:
        """Return the ratio and the values an entry was pooled from, and start anew."""
        assert self._squares is not None
        between = self._squares.sum() / (self.batches - 1)
        ratio = between / (self._within / self.batches)
        count = self._count / self.batches
        self.__init__()
        return ratio, count

    def state_dict(self) -> dict[str, Any]:
        """Return what `Window(**state)` continues from."""
        return {
            "batches": self.batches,
            "middle": None if self._middle is None else self._middle.tolist(),
            "squares": None if self._squares is None else self._squares.tolist(),
            "within": float(self._within),
            "count": float(self._count),
        }
