"""What batch statistics are at one step, beside the running ones: read without touching a norm.

Shared by the probes that compare the two. The batch's moments are those that the norm itself kept
of its last training batch, and in a recurrence of its last position; the running ones are taken
before the batch enters them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import RunningNorm
from normlab.norms.pool import Moments
from normlab.probes.sites import sites

NO_RUNNING = "no norm keeps running statistics"
Entries = Float[Tensor, " n"]


@dataclass(frozen=True)
class Statistics:
    """One norm's statistics at one step, entry by entry: of the batch, before and after it.

    Entries that too few values were pooled for are left out. `count` is how many values an entry
    was pooled from, on average.
    """

    mean: Entries
    var: Entries
    mean_before: Entries
    var_before: Entries
    mean_after: Entries
    var_after: Entries
    count: Float[Tensor, ""]


class StatisticsReader:
    """Reads the statistics of every norm of a model that keeps running ones."""

    def __init__(self, model: nn.Module) -> None:
        self.norms: dict[str, RunningNorm] = sites(model, RunningNorm)
        self._before: dict[str, tuple[Tensor, ...]] = {}

    def remember(self) -> None:
        """Keep the running statistics as they are before a step."""
        self._before = {
            name: tuple(moment.clone() for moment in norm.running_moments())
            for name, norm in self.norms.items()
        }

    def read(self) -> Iterator[tuple[str, Statistics]]:
        """Return the statistics of the step, by site; nothing of a norm that saw no batch."""
        for name, norm in self.norms.items():
            if norm.seen is not None and name in self._before:
                yield name, _compare(norm, norm.seen, *self._before[name])


@torch.no_grad()
def _compare(norm: RunningNorm, seen: Moments, mean_before: Tensor, var_before: Tensor):
    mean, var = norm.estimates(seen)
    rows = slice(norm.seen_from, norm.seen_from + mean.shape[0])
    pooled = (seen.count > 1).expand(mean.shape)
    mean_after, var_after = norm.running_moments()
    return Statistics(
        mean=mean[pooled],
        var=var[pooled],
        mean_before=mean_before[rows][pooled],
        var_before=var_before[rows][pooled],
        mean_after=mean_after[rows][pooled],
        var_after=var_after[rows][pooled],
        count=seen.count.mean(),
    )
