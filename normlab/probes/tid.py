"""Follow the training-inference discrepancy: how far batch and running statistics are apart.

In the form of the paper (Wang, Wu and Huang 2022, as code that cites it has it), a mean over the
observed steps:

    mean = ||mu_B - mu|| / ||sigma||        var = ||sigma_B - sigma|| / ||sigma||

with Euclidean norms over the features of one norm, mu and sigma the running statistics before the
batch has entered them. Their released code logs another form, per feature and after the batch has
entered (so 1 - momentum times as large):

    code_mean = mean_c |mu - mu_B| / sigma_B        code_var = mean_c |sigma / sigma_B - 1|

Each is a mean over the norms of the model, and by site. With `sync` the batch is that of all
processes. A model without running statistics has no figures.

`StatisticsReader` serves `fluctuation` and `length_change` too. It reads the moments that a norm
kept of its last training batch (in a recurrence, of the last position), and takes the running ones
before the batch enters them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import RunningNorm
from normlab.norms.pool import Moments
from normlab.probes.base import StepView
from normlab.probes.figures import FigureProbe, all_by_site
from normlab.probes.sites import sites

NO_RUNNING = "no norm keeps running statistics"
Entries = Float[Tensor, " n"]


@dataclass(frozen=True)
class Statistics:
    """Statistics of one norm at one step, entry by entry: of the batch, before and after it.

    Entries that were pooled from too few values are left out. `count` is how many values an entry
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


class TrainInferenceDiscrepancy(FigureProbe):
    """Log and average the discrepancy in both forms; `eps` keeps a variance from being 0."""

    def __init__(self, *, every: int, eps: float) -> None:
        super().__init__(every=every)
        self._eps = eps

    def attach(self, model: nn.Module) -> None:
        """Find the norms with running statistics."""
        self._reader = StatisticsReader(model)
        self.why_not = "" if self._reader.norms else NO_RUNNING

    def before_forward(self, step: int) -> None:
        """Keep the running statistics."""
        self._reader.remember()

    def before_update(self, view: StepView) -> None:
        """Compare the batch's statistics with them."""
        found = {name: discrepancy(s, eps=self._eps) for name, s in self._reader.read()}
        self.take(view, all_by_site(found))


def discrepancy(statistics: Statistics, *, eps: float) -> dict[str, Tensor]:
    """Return `mean`, `var`, `code_mean` and `code_var` of one norm at one step."""
    s = statistics
    sigma_batch = s.var.clamp(min=eps).sqrt()
    sigma_before = s.var_before.clamp(min=eps).sqrt()
    sigma_after = s.var_after.clamp(min=eps).sqrt()
    scale = torch.linalg.vector_norm(sigma_before)
    return {
        "mean": torch.linalg.vector_norm(s.mean - s.mean_before) / scale,
        "var": torch.linalg.vector_norm(sigma_batch - sigma_before) / scale,
        "code_mean": ((s.mean_after - s.mean).abs() / sigma_batch).mean(),
        "code_var": (sigma_after / sigma_batch - 1).abs().mean(),
    }
