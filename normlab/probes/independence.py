"""Measures how far a batch's tokens are from independent draws.

Each measurement takes `samples` samples (sentences or images) from a batch norm's input, and draws
`tokens` real tokens from each, so n = samples * tokens tokens in total. Text and images, and narrow
and wide models, are therefore measured in the same way.

    icc       intraclass correlation: the share of a feature's variance that the tokens of a sample
              have in common, by one-way ANOVA, (MSB - MSW) / (MSB + (tokens - 1) MSW)
    effect    1 + (tokens - 1) icc, the variance of the mean of the n tokens relative to that of n
              independent tokens. The n tokens are worth n / effect independent ones
    distance  n (mean of the n tokens - running mean)^2 / running variance
    gradient  (sum of g)^2 / sum of g^2 over the n tokens, with g the gradient of a token's output.
              The sum flows through the batch's mean (see `statistics_gradient`). Omitted in
              compiled code

All four are means over features. For independent draws, icc is 0 and the other three are 1.
`shuffled/icc` is a control, in which the same tokens are randomly assigned to the samples.

`position/icc` shows whether the distribution varies with position: it is the share of a feature's
variance that the tokens at one position of different samples have in common, over all real tokens
of the batch. In its control, `position/shuffled/icc`, the same tokens are at random positions. In
expectation, neither depends on the number of samples. The correlation of tokens in one sample
lowers `position/icc` by about `icc` divided by the number of samples.

Norms with statistics per position, and norms that a recurrent layer calls with one position at a
time, are left out, because they pool one token per sample.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from normlab.norms.running import RunningNorm
from normlab.probes.base import Probe, Values
from normlab.probes.sites import ModuleCall


class Independence(Probe):
    """Measures how similar the tokens are that a batch statistic pools."""

    kinds = ("norm",)
    after_backward = True
    absent = "no norm pools several tokens of a sample over the batch"

    def __init__(self, *, every: int, samples: int, tokens: int) -> None:
        super().__init__(every=every)
        self._samples, self._tokens = samples, tokens
        self._generator = torch.Generator()  # leaves the run's random state untouched
        self._running: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def applies(self, module: nn.Module) -> bool:
        return (
            isinstance(module, RunningNorm)
            and not module.by_position
            and len(module.running_moments()[0]) == 1
        )

    def before_forward(self, step: int) -> None:
        super().before_forward(step)
        self._generator.manual_seed(step)
        for _, norm in self.sites.values():
            assert isinstance(norm, RunningNorm)
            mean, var = norm.running_moments()
            self._running[norm] = mean[0].clone(), var[0].clamp(min=norm.eps)

    @torch.no_grad()
    def measure_call(self, call: ModuleCall) -> Values:
        x, real = call.input
        chosen = drawn(real, self._samples, self._tokens, self._generator)
        if chosen is None:  # too few samples have enough tokens
            return {}
        values = x.flatten(0, 1)[chosen].double()
        order = torch.randperm(chosen.numel(), generator=self._generator).to(x.device)
        shuffled = values.flatten(0, 1)[order].view_as(values)
        mean, var = (moment.double() for moment in self._running[call.module])
        icc = intraclass_correlation(values)
        metrics = {
            "icc": icc,
            "effect": 1 + (self._tokens - 1) * icc,
            "distance": chosen.numel() * ((values.mean((0, 1)) - mean).square() / var).mean(),
            "shuffled/icc": intraclass_correlation(shuffled),
        }
        if call.grad is not None:
            grad = call.grad.flatten(0, 1)[chosen].flatten(0, 1).double()
            squares = grad.square().sum(0).clamp(min=torch.finfo(grad.dtype).tiny)
            metrics["gradient"] = (grad.sum(0).square() / squares).mean()
        return {**metrics, **self._by_position(x.double(), real)}

    def _by_position(self, x: Float[Tensor, "B P D"], real: Bool[Tensor, "B P"]) -> Values:
        tokens = x[real]
        moved = torch.zeros_like(x)
        order = torch.randperm(len(tokens), generator=self._generator).to(x.device)
        moved[real] = tokens[order]
        values_by_metric = {"position/icc": x, "position/shuffled/icc": moved}
        return {
            name: correlation_at_positions(values, real)
            for name, values in values_by_metric.items()
        }


def drawn(
    real: Bool[Tensor, "B P"], samples: int, tokens: int, generator: torch.Generator
) -> Int[Tensor, "samples tokens"] | None:
    """Draw flat indices of real tokens from the first samples that have enough of them.

    Returns None if too few samples have enough.
    """
    rows = (real.sum(1) >= tokens).nonzero()[:samples, 0]
    if len(rows) < samples:
        return None
    keys = torch.rand(samples, real.shape[1], generator=generator).to(real.device)
    chosen = keys.masked_fill(~real[rows], 2.0).topk(tokens, largest=False).indices
    return rows[:, None] * real.shape[1] + chosen


def intraclass_correlation(x: Float[Tensor, "samples tokens D"]) -> Float[Tensor, ""]:
    """Return the share of variance that tokens of a sample share, averaged over features."""
    samples, tokens, _ = x.shape
    middle = x.mean(1)
    between = tokens * middle.var(0)
    within = (x - middle[:, None]).square().sum((0, 1)) / (samples * (tokens - 1))
    total = between + (tokens - 1) * within
    whole = total.clamp(min=torch.finfo(x.dtype).tiny)
    return ((between - within) / whole).mean()


def correlation_at_positions(
    x: Float[Tensor, "B P D"], real: Bool[Tensor, "B P"]
) -> Float[Tensor, ""]:
    """Return the share of the variance that real tokens at one position have in common.

    This is the intraclass correlation by one-way ANOVA, with positions as classes of unequal size
    (Donner 1986), averaged over features. For a feature without variance, it is 0.
    """
    counts = real.sum(0).to(x.dtype)[:, None]
    n, classes = counts.sum(), (counts > 0).sum()
    mask = real[..., None]
    sums = (x * mask).sum(0)
    means = sums / counts.clamp(min=1)
    between = (counts * (means - sums.sum(0) / n).square()).sum(0) / (classes - 1)
    within = ((x - means) * mask).square().sum((0, 1)) / (n - classes)
    size = (n - counts.square().sum() / n) / (classes - 1)
    whole = (between + (size - 1) * within).clamp(min=torch.finfo(x.dtype).tiny)
    return ((between - within) / whole).mean()
