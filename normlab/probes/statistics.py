"""Probes of batch statistics: their distance from running statistics, and their gradient.

`tid` is the training-inference discrepancy of Wang, Wu and Huang 2022, as implemented in code that
cites the paper, averaged over the measured steps:

    mean = ||mu_B - mu|| / ||sigma||        var = ||sigma_B - sigma|| / ||sigma||

with Euclidean norms over a norm's features. mu_B and sigma_B are the batch's statistics, mu and
sigma the running statistics before the batch.

`fluctuation` is how much statistics vary from batch to batch. Two of its metrics are the distances
that Shen et al. 2020 (PowerNorm) plot, with d features and running statistics before the batch:

    mean = (1/d) ||mu_B - mu||        var = (1/d) ||sigma_B^2 - sigma^2||

The others, over `window` measured batches, compare the variance between batches with the variance
within batches:

    ratio  = sum_c Var_B(mu_B) / sum_c mean_B(sigma_B^2)
    excess = ratio * n

where the sums are over features c, and n is the number of values pooled into a statistic. If the
tokens of a batch were independent draws, the mean of n of them would have the variance sigma^2 / n,
and `excess` would be 1. If it is above 1, the tokens of a batch resemble each other, and batch
statistics are as noisy as those of n / excess independent tokens. Both are left out until a window
is full, and for norms with separate statistics per position, because batches differ in length.

`padding` has three metrics. `share` is the share of padding among all positions of a step's batch,
and `max` is the largest share in the run. `tokens` is the number of tokens pooled into one batch
statistic, averaged over the norms that pool over the batch, and for each norm over its ghost
batches and its positions with separate statistics. Padding counts if the norm includes it.

`statistics_gradient` is the gradient through the batch's mean and variance. A norm's output is
`y = w (x - mu) / sigma + b`, where mu and sigma^2 are batch statistics and sigma^2 includes eps.
Therefore

    dL/dmu = -w / sigma * sum dL/dy          = -w / sigma dL/db
    dL/dsigma^2 = -w / (2 sigma^2) sum dL/dy z = -w / (2 sigma^2) dL/dw

with z = (x - mu) / sigma (Ioffe and Szegedy 2015, section 3). The gradients of the norm's weight
and bias already contain the sums. `mean` and `var` are (1/d) ||dL/dmu|| and (1/d) ||dL/dsigma^2||.
Shen et al. 2020 track the same gradients, g_mu and g_sigma^2, during training. Three kinds of norms
are left out: norms without a learned weight and bias; norms with statistics per position or called
with one position at a time, whose gradients sum over positions; and norms that do not normalize
only with the batch's statistics (ghost batches, PowerNorm, batch renormalization). With gradient
accumulation, sigma comes from the last micro-batch, but the gradients cover all micro-batches. With
several processes and `sync: false`, sigma likewise comes from one process.

With `sync`, the batch spans all processes. In a recurrent layer, the last position is measured.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.norms.running import RunningNorm
from normlab.probes.base import Probe, StepView, Values, all_by_site
from normlab.probes.sites import modules_by_site

Entries = Float[Tensor, " n"]


class Statistics(NamedTuple):
    """One norm's batch statistics at a step, and its running statistics before the batch.

    Attributes:
        pooled: whether each entry pools more than one value. The other entries are masked out of
            every metric, because to select entries would wait for the device.
        mean, var: the batch's statistics.
        mean_before, var_before: the running statistics before the batch.
        count: the average number of values pooled into an entry.
        rows: the number of rows in the norm's tables.
    """

    pooled: Bool[Tensor, " n"]
    mean: Entries
    var: Entries
    mean_before: Entries
    var_before: Entries
    count: Float[Tensor, ""]
    rows: int = 1
    site: str = ""


class StatisticsProbe(Probe):
    """A probe that measures the `Statistics` of each norm before the optimizer's update."""

    def attach(self, model: nn.Module) -> None:
        self._norms = modules_by_site(model, RunningNorm)
        self.why_not = "" if self._norms else "no norm keeps running statistics"

    def before_forward(self, step: int) -> None:
        self._before = {
            name: [moment.clone() for moment in norm.running_moments()]
            for name, norm in self._norms.items()
        }

    def measure_norm(self, statistics: Statistics) -> Values:
        """Return the metrics of one norm's statistics."""
        raise NotImplementedError

    def measure_step(self, view: StepView) -> Values:
        return all_by_site({each.site: self.measure_norm(each) for each in self.read()})

    @torch.no_grad()
    def read(self) -> list[Statistics]:
        """Return the step's statistics of each norm that has seen a batch."""
        statistics = []
        for name, norm in self._norms.items():
            if norm.last_batch is None:
                continue
            batch, before = norm.last_batch(), self._before[name]
            count, (mean, var) = batch.count, norm.estimates(batch)
            pooled = (count > 1).expand(mean.shape)
            rows = slice(norm.last_batch_row, norm.last_batch_row + len(mean))
            entries = (pooled, mean, var, *(table[rows] for table in before))
            flat = [x.flatten() for x in entries]
            statistics.append(Statistics(*flat, count=count.mean(), rows=len(before[0]), site=name))
        return statistics


class TrainInferenceDiscrepancy(StatisticsProbe):
    """Measures the training-inference discrepancy. Variances below `eps` are taken to be `eps`."""

    def __init__(self, *, every: int, eps: float) -> None:
        super().__init__(every=every)
        self._eps = eps

    def measure_norm(self, statistics: Statistics) -> Values:
        return discrepancy(statistics, eps=self._eps)


def discrepancy(statistics: Statistics, *, eps: float) -> dict[str, Tensor]:
    """Return the metrics `mean` and `var` of `tid`, for one norm at one step."""
    sigma_batch, sigma = (
        var.clamp(min=eps).sqrt() for var in (statistics.var, statistics.var_before)
    )
    scale = _length(sigma, statistics.pooled)
    return {
        "mean": _length(statistics.mean - statistics.mean_before, statistics.pooled) / scale,
        "var": _length(sigma_batch - sigma, statistics.pooled) / scale,
    }


def _length(entries: Entries, pooled: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return the Euclidean norm of the entries that pool more than one value."""
    return torch.linalg.vector_norm(entries.masked_fill(~pooled, 0))


class Fluctuation(StatisticsProbe):
    """Measures the fluctuation of batch statistics."""

    remembered = ("_windows",)

    def __init__(self, *, every: int, window: int) -> None:
        super().__init__(every=every)
        self._length = window
        self._windows: dict[str, list[tuple[Tensor, ...]]] = {}

    def measure_norm(self, statistics: Statistics) -> Values:
        moves = {
            "mean": statistics.mean - statistics.mean_before,
            "var": statistics.var - statistics.var_before,
        }
        entries = statistics.pooled.sum()
        metrics = {name: _length(move, statistics.pooled) / entries for name, move in moves.items()}
        if statistics.rows > 1:
            return metrics
        window = self._windows.setdefault(statistics.site, [])
        window.append((statistics.mean, statistics.var, statistics.count, statistics.pooled))
        if len(window) == self._length:
            stacked = (torch.stack(each).double() for each in zip(*window, strict=True))
            mean, var, count, pooled = stacked
            ratio = mean.var(0).sum() / var.mean(0).sum()
            ratio = ratio.where(pooled.all(), math.nan)
            metrics |= {"ratio": ratio, "excess": ratio * count.mean()}
            window.clear()
        return metrics


class Padding(Probe):
    """Measures the share of padding and the number of tokens per batch statistic."""

    largest = ("max",)

    def attach(self, model: nn.Module) -> None:
        self._norms = list(modules_by_site(model, RunningNorm).values())

    def measure_step(self, view: StepView) -> Values:
        share = torch.full((), view.padding_share, dtype=torch.float64, device=view.loss.device)
        norms = [norm for norm in self._norms if norm.last_batch is not None]
        tokens = [tokens_per_statistic(norm) for norm in norms]
        metrics = {"share": share, "max": share}
        return metrics | {"tokens": torch.stack(tokens).mean()} if tokens else metrics


def tokens_per_statistic(norm: RunningNorm) -> Float[Tensor, ""]:
    """Return the mean number of tokens in a statistic of a norm's last batch.

    A position without tokens in a ghost batch has no statistic there.
    """
    counts = norm.weight.new_zeros(1, dtype=torch.float64) + norm.last_counts
    tokens = counts.sum() / (counts > 0).sum().clamp(min=1)
    return tokens / (norm.dim if "feature" in norm.pools else 1)


class StatisticsGradient(Probe):
    """Measures the gradients through the batch's mean and variance."""

    def attach(self, model: nn.Module) -> None:
        self._norms = {
            name: norm
            for name, norm in modules_by_site(model, RunningNorm).items()
            if {"batch", "position"} <= norm.pools and not norm.by_position
        }
        self.why_not = "" if self._norms else "no norm pools all tokens of a batch"

    def measure_step(self, view: StepView) -> Values:
        sizes: dict[str, Values] = {}
        for name, norm in self._norms.items():
            if (gradients := statistics_gradient(norm)) is not None:
                mean, var = (torch.linalg.vector_norm(g) / g.numel() for g in gradients)
                sizes[name] = {"mean": mean, "var": var}
        return all_by_site(sizes)


@torch.no_grad()
def statistics_gradient(norm: RunningNorm) -> tuple[Tensor, Tensor] | None:
    """Return dL/dmu and dL/dsigma^2 for a norm's last batch, or None if the norm is left out."""
    divisor = norm.batch_divisor()
    if divisor is None or norm.weight.grad is None or norm.bias.grad is None:
        return None
    pulls = torch.stack([norm.weight * norm.bias.grad, norm.weight * norm.weight.grad])
    if "feature" in norm.pools:
        pulls = pulls.sum(-1, keepdim=True)
    return -pulls[0] / divisor, -pulls[1] / (2 * divisor.square())
