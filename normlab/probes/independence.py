"""Follow how far the tokens of a batch are from independent draws, at equal tokens in every task.

Of each batch norm's input `samples` samples are taken, sentences or pictures, and `tokens` real
tokens of each, drawn anew at every look: `n = samples * tokens`. So text and pictures, narrow and
wide models are looked at alike; each feature is measured in its own deviations.

    icc      share of a feature's variance that tokens of a sample have in common, from one-way
             analysis of variance: (MSB - MSW) / (MSB + (tokens - 1) MSW)
    effect   1 + (tokens - 1) icc: how many times the variance of a mean of n independent tokens
             the variance of these n's mean is; n / effect tokens is what they are worth
    distance n (mean of the n - running mean)^2 / running variance
    gradient (sum of g)^2 / sum of g^2 over the n, with g the gradient of a token's output: the sum
             is what flows through the batch's mean (see `statistics_gradient`); a compiled model
             has no place to take it at, and leaves it out

Independent draws have an icc of 0 and 1 in the others, of which the last two are means over
features. `shuffled/icc` is the control: the same tokens dealt out over the samples at random.

Norms by position, and those that a recurrence calls step by step, pool one token of a sample: of
them there is nothing to ask.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from normlab.norms.base import RunningNorm
from normlab.probes.figures import HookedProbe, Values, by_site
from normlab.probes.sites import sites

_FIGURES = ("icc", "effect", "distance", "gradient", "shuffled/icc")


class Independence(HookedProbe):
    """Log and average how alike the tokens are that a batch statistic pools."""

    def __init__(self, *, every: int, samples: int, tokens: int) -> None:
        super().__init__(every=every)
        for name, value in (("samples", samples), ("tokens", tokens)):
            if value < 2:
                raise ValueError(f"{name}: {value} must be at least 2 to have a variance")
        self._samples, self._tokens = samples, tokens
        self._generator = torch.Generator()  # of its own: a run's random state stays

    def attach(self, model: nn.Module) -> None:
        """Look at input and output of each norm whose statistics pool tokens of a sample."""
        norms = {
            name: norm
            for name, norm in sites(model, RunningNorm).items()
            if len(norm.running_moments()[0]) == 1 and not norm.by_position
        }
        self.why_not = "" if norms else "no norm pools several tokens of a sample over the batch"
        for name, norm in norms.items():
            norm.register_forward_pre_hook(self._enter(name, norm))
            norm.register_forward_hook(self._leave(name))

    def before_forward(self, step: int) -> None:
        """Begin to look."""
        super().before_forward(step)
        self._generator.manual_seed(step)

    def figures(self, seen: Mapping[str, Any]) -> Values:
        """Return each figure of what was seen, whole and by site."""
        measured = {name: self._measured(**of) for name, of in seen.items()}
        found: dict[str, Tensor] = {}
        for figure in _FIGURES:
            values = {name: of[figure] for name, of in measured.items() if figure in of}
            found |= by_site(figure, values)
        return found

    @torch.no_grad()
    def _measured(
        self, x: Tensor, real: Tensor, mean: Tensor, var: Tensor, grad: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the figures of a norm by name; none where too few samples have enough tokens."""
        places = drawn(real, self._samples, self._tokens, self._generator)
        if places is None:
            return {}
        values = x.flatten(0, 1)[places].double()
        order = torch.randperm(places.numel(), generator=self._generator).to(x.device)
        shuffled = values.flatten(0, 1)[order].view_as(values)
        icc = intraclass_correlation(values)
        gap = (values.mean((0, 1)) - mean.double()).square() / var.double()
        found = {
            "icc": icc,
            "effect": 1 + (self._tokens - 1) * icc,
            "distance": places.numel() * gap.mean(),
            "shuffled/icc": intraclass_correlation(shuffled),
        }
        if grad is not None:
            found["gradient"] = coherence(grad.flatten(0, 1)[places].flatten(0, 1))
        return found

    def _enter(self, name: str, norm: RunningNorm) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            if self.watching:
                x, stream = arguments
                mean, var = norm.running_moments()
                self.seen[name] = {
                    "x": x.detach(),
                    "real": stream.real(x),
                    "mean": mean[0].clone(),
                    "var": var[0].clamp(min=norm.eps),
                }

        return look

    def _leave(self, name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def look(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
            if self.watching and output.requires_grad and not torch.compiler.is_compiling():
                output.register_hook(partial(self.seen[name].__setitem__, "grad"))

        return look


def drawn(
    real: Bool[Tensor, "B P"], samples: int, tokens: int, generator: torch.Generator
) -> Int[Tensor, "samples tokens"] | None:
    """Draw real tokens of the first samples that have enough, as flat places; None if too few."""
    rows = (real.sum(1) >= tokens).nonzero()[:samples, 0]
    if len(rows) < samples:
        return None
    keys = torch.rand(samples, real.shape[1], generator=generator).to(real.device)
    chosen = keys.masked_fill(~real[rows], 2.0).topk(tokens, largest=False).indices
    return rows[:, None] * real.shape[1] + chosen


def intraclass_correlation(x: Float[Tensor, "samples tokens D"]) -> Float[Tensor, ""]:
    """Return the share of variance that tokens of a sample have in common, features alike."""
    samples, tokens, _ = x.shape
    middle = x.mean(1)
    between = tokens * middle.var(0)
    within = (x - middle[:, None]).square().sum((0, 1)) / (samples * (tokens - 1))
    total = between + (tokens - 1) * within
    whole = total.clamp(min=torch.finfo(x.dtype).tiny)
    return ((between - within) / whole).mean()


@torch.no_grad()
def coherence(grad: Float[Tensor, "n D"]) -> Float[Tensor, ""]:
    """Return (sum of g)^2 / sum of g^2, the mean over features; 1 for independent signs."""
    wide = grad.double()
    squares = wide.square().sum(0).clamp(min=torch.finfo(wide.dtype).tiny)
    return (wide.sum(0).square() / squares).mean()
