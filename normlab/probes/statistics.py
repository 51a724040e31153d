"""Statistics of a batch against the running ones, and the gradient that flows through them.

`tid`, the training-inference discrepancy, in the form of the paper (Wang, Wu and Huang 2022, as
code that cites it has it), a mean over the measured steps:

    mean = ||mu_B - mu|| / ||sigma||        var = ||sigma_B - sigma|| / ||sigma||

with Euclidean norms over the features of one norm, mu and sigma the running statistics before the
batch has entered them. Their released code logs another form, per feature and after the batch has
entered (so 1 - momentum times as large):

    code_mean = mean_c |mu - mu_B| / sigma_B        code_var = mean_c |sigma / sigma_B - 1|

`fluctuation` from batch to batch: the distances that Shen et al. 2020 (PowerNorm) plot over
training; here the running statistics are those before the batch, and d is the number of features:

    mean = (1/d) ||mu_B - mu||        var = (1/d) ||sigma_B^2 - sigma^2||

and, within windows of `window` measured batches, the variance between batches against that within:

    ratio  = sum_c Var_B(mu_B) / sum_c mean_B(sigma_B^2)
    excess = ratio * n

with n the values that an entry is pooled from. If the tokens of a batch were independent draws, the
mean of n of them would have variance sigma^2 / n and `excess` would be 1; above 1, tokens of a
batch resemble each other and its statistics are worth n / excess tokens. The ratio is left out for
norms with several rows of statistics, whose positions come and go, and until a window is full.

`padding`: `share` is the padding among all positions of a step's batch and `max` the largest share
of the run. `tokens` is how many tokens one statistic of the batch is made of, a mean over the norms
that pool over the batch, and over positions where these have statistics of their own; padding
counts where the norm includes it.

`statistics_gradient`: a norm's output is y = w (x - mu) / sigma + b, so that, with mu and sigma^2
those of the batch and sigma^2 holding the norm's eps,

    dL/dmu = -w / sigma * sum dL/dy          = -w / sigma dL/db
    dL/dsigma^2 = -w / (2 sigma^2) sum dL/dy z = -w / (2 sigma^2) dL/dw

(Ioffe and Szegedy 2015, section 3): the gradients of the norm's own weight and bias hold the sums
already. `mean` and `var` are (1/d) ||dL/dmu|| and (1/d) ||dL/dsigma^2||. Shen et al. 2020 follow
the same gradients, g_mu and g_sigma^2, over training. Left out: norms without a learned weight and
bias, those with statistics per position (all that a recurrence calls step by step), whose sums over
tokens the parameters do not hold, and those that more than a batch's own statistics normalize
(ghost batches, PowerNorm, batch renormalization). With accumulation sigma is the last
micro-batch's and the gradients are those of all; with several processes and `sync: false` likewise.

With `sync` the batch is that of all processes. In a recurrence the moments are those of the last
position.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import RunningNorm
from normlab.probes.base import Probe, StepView, Values, all_by_site
from normlab.probes.sites import sites

NO_RUNNING = "no norm keeps running statistics"
Entries = Float[Tensor, " n"]


class Statistics(NamedTuple):
    """Statistics of one norm at one step, entry by entry: of the batch, before and after it.

    Entries that were pooled from too few values are left out. `count` is how many values an entry
    was pooled from, on average; `rows` how many rows of statistics the norm has.
    """

    mean: Entries
    var: Entries
    mean_before: Entries
    var_before: Entries
    mean_after: Entries
    var_after: Entries
    count: Float[Tensor, ""]
    rows: int = 1
    site: str = ""


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

    @torch.no_grad()
    def read(self) -> list[Statistics]:
        """Return the statistics of the step, norm by norm; nothing of a norm that saw no batch."""
        found = []
        for name, norm in self.norms.items():
            if norm.seen is None or name not in self._before:
                continue
            mean, var = norm.estimates(norm.seen)
            pooled = (norm.seen.count > 1).expand(mean.shape)
            rows = slice(norm.seen_from, norm.seen_from + len(mean))
            kept = [table[rows][pooled] for table in (*self._before[name], *norm.running_moments())]
            found.append(
                Statistics(
                    *(mean[pooled], var[pooled], *kept),
                    count=norm.seen.count.mean(),
                    rows=len(self._before[name][0]),
                    site=name,
                )
            )
        return found


class StatisticsProbe(Probe):
    """A probe that measures the `Statistics` of each norm, before the optimizer's update."""

    def attach(self, model: nn.Module) -> None:
        self.reader = StatisticsReader(model)
        self.why_not = "" if self.reader.norms else NO_RUNNING

    def before_forward(self, step: int) -> None:
        self.reader.remember()

    def before_update(self, view: StepView) -> None:
        self.take(view, all_by_site({s.site: self.measure(s) for s in self.reader.read()}))


class TrainInferenceDiscrepancy(StatisticsProbe):
    """Log and average the discrepancy in both forms; `eps` keeps a variance from being 0."""

    def __init__(self, *, every: int, eps: float) -> None:
        super().__init__(every=every)
        self._eps = eps

    def measure(self, seen: Statistics) -> Values:
        return discrepancy(seen, eps=self._eps)


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


class Fluctuation(StatisticsProbe):
    """Log and average the fluctuation of batch statistics."""

    remembered = ("_windows",)

    def __init__(self, *, every: int, window: int) -> None:
        super().__init__(every=every)
        if window < 2:
            raise ValueError(f"window: {window} must be at least 2 batches to have a variance")
        self._length = window
        self._windows: dict[str, list[tuple[Tensor, ...]]] = {}

    def measure(self, seen: Statistics) -> Values:
        found = {
            "mean": distance(seen.mean, seen.mean_before),
            "var": distance(seen.var, seen.var_before),
        }
        if seen.rows > 1:
            return found
        window = self._windows.setdefault(seen.site, [])
        window.append((seen.mean, seen.var, seen.count))
        if len(window) == self._length:
            mean, var, count = (torch.stack(each).double() for each in zip(*window, strict=True))
            ratio = mean.var(0).sum() / var.mean(0).sum()
            found |= {"ratio": ratio, "excess": ratio * count.mean()}
            window.clear()
        return found


def distance(batch: Entries, running: Entries) -> Tensor:
    """Return (1/d) times the Euclidean distance."""
    return torch.linalg.vector_norm(batch - running) / len(batch)


class Padding(Probe):
    """Log and average the padding share and the tokens of a batch statistic, at every step."""

    largest = ("max",)

    def attach(self, model: nn.Module) -> None:
        self._norms = list(sites(model, RunningNorm).values())

    def measure(self, seen: StepView) -> Values:
        share = torch.full((), seen.padding_share, dtype=torch.float64, device=seen.loss.device)
        tokens = [
            norm.seen.count.double().mean() / (norm.dim if "feature" in norm.pools else 1)
            for norm in self._norms
            if norm.seen is not None
        ]
        found = {"share": share, "max": share}
        return found | {"tokens": torch.stack(tokens).mean()} if tokens else found


class StatisticsGradient(Probe):
    """Log and average the gradients through the batch's mean and variance."""

    def attach(self, model: nn.Module) -> None:
        self._norms = {
            name: norm
            for name, norm in sites(model, RunningNorm).items()
            if {"batch", "position"} <= norm.pools and not norm.by_position
        }
        self.why_not = "" if self._norms else "no norm pools all tokens of a batch"

    def measure(self, seen: StepView) -> Values:
        sizes: dict[str, Values] = {}
        for name, norm in self._norms.items():
            if (gradients := statistics_gradient(norm)) is not None:
                mean, var = (torch.linalg.vector_norm(g) / g.numel() for g in gradients)
                sizes[name] = {"mean": mean, "var": var}
        return all_by_site(sizes)


@torch.no_grad()
def statistics_gradient(norm: RunningNorm) -> tuple[Tensor, Tensor] | None:
    """Return dL/dmu and dL/dsigma^2 of a norm's last batch; None where they cannot be told."""
    divisor = norm.batch_divisor()
    if divisor is None or norm.weight.grad is None or norm.bias.grad is None:
        return None
    pulls = torch.stack([norm.weight * norm.bias.grad, norm.weight * norm.weight.grad])
    if "feature" in norm.pools:
        pulls = pulls.sum(-1, keepdim=True)
    return -pulls[0] / divisor, -pulls[1] / (2 * divisor.square())
