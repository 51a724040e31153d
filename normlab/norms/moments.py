"""Decides how statistics are taken: masked moments over any subset of batch, time and feature.

`x` is `[B, T, D]`. A set of axes to pool over turns it into tables of one size less along each
pooled axis, kept as 1 so that they broadcast against `x`. Statistics are fp32 whatever the input
(float64 stays float64), and the variance takes two passes: the mean first, then the squares about
it, since the difference of two large sums would cancel.

`standardize` is what every norm with masked statistics calls. Its backward is written by hand:
torch's own `BatchNorm1d` on the packed tokens costs a multiple of layer norm on CPU, and autograd
through the plain formula costs another; this one reads and writes `x` about as often as layer norm.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Table = Float[Tensor, "#b #t #d"]  # an axis of x, or 1 where it was pooled


class Moments(NamedTuple):
    """Mean and variance of the values that were pooled, and how many those were.

    `spread` is the count that divided the variance. It is `count` unless padding was filled with
    the mean, where padding adds to the count of the variance and nothing to its sum.
    """

    mean: Table
    var: Table
    count: Table
    spread: Table


class Weights(NamedTuple):
    """Which tokens a statistic is made of: 1 where a token enters, else 0, `[B, T, 1]`."""

    sums: Float[Tensor, "B T 1"]
    spread: Float[Tensor, "B T 1"]


def widen(x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Return all tensors in the dtype of statistics: float64 for a float64 `x`, else float32."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return tuple(tensor.to(dtype) for tensor in (x, *others))


def here(table: Tensor) -> Tensor:
    """Return the table as it is: statistics of this process alone."""
    return table


@dataclass(frozen=True)
class Pooling:
    """A set of axes to pool over, as sums.

    `everywhere` adds tables over processes; it is applied once to each sum and must return the
    shape that it was given.
    """

    axes: Set[str]
    everywhere: Callable[[Tensor], Tensor] = here

    @property
    def tokens(self) -> tuple[int, ...]:
        """The dimensions of `x` to sum over among batch and time."""
        return tuple(dim for dim, axis in enumerate(("batch", "time")) if axis in self.axes)

    def over_tokens(self, weights: Float[Tensor, "B T 1"], x: Float[Tensor, "B T D"]) -> Table:
        """Sum the weighted tokens over batch and time, as far as these are pooled."""
        if self.tokens == (0, 1):
            # A matrix-vector product: one read of x. Unlike matrix products it is never lowered
            # to TF32 or bf16, so a global setting for speed leaves statistics exact.
            return torch.mv(x.reshape(-1, x.shape[-1]).t(), weights.reshape(-1))[None, None]
        return (weights * x).sum(self.tokens, keepdim=True) if self.tokens else weights * x

    def over_features(self, table: Table) -> Table:
        """Sum over features, if these are pooled."""
        return table.sum(-1, keepdim=True) if "feature" in self.axes else table

    def moments(
        self, x: Float[Tensor, "B T D"], weights: Weights
    ) -> tuple[Moments, Float[Tensor, "B T D"]]:
        """Return the moments of `x` and `x` less its mean."""
        values = x.shape[-1] if "feature" in self.axes else 1
        sums = self.over_features(self.over_tokens(weights.sums, x))
        counts = [
            tokens.sum(self.tokens, keepdim=True) if self.tokens else tokens for tokens in weights
        ]
        width = sums.shape[-1]
        sums, *counts = self.everywhere(torch.cat((sums, *counts), -1)).split((width, 1, 1), -1)
        count, spread = (values * tokens for tokens in counts)
        mean = sums / count.clamp(min=1)
        centred = x - mean
        squares = self.over_tokens(weights.sums, centred * centred)
        var = self.everywhere(self.over_features(squares)) / spread.clamp(min=1)
        return Moments(mean, var, count, spread), centred


def moments(x: Float[Tensor, "B T D"], weights: Float[Tensor, "B T"], axes: Set[str]) -> Moments:
    """Return the moments of `x` over `axes`, a subset of batch, time and feature, differentiably.

    `weights` is 1 at the tokens that count and 0 elsewhere. Where nothing counts the mean and the
    variance are 0.
    """
    wide, weights = widen(x, weights.unsqueeze(-1))
    with torch.autocast(x.device.type, enabled=False):
        return Pooling(axes).moments(wide, Weights(weights, weights))[0]


class _Standardize(torch.autograd.Function):
    """`weight * (x - mean) / sqrt(var + eps) + bias` at counted tokens, 0 elsewhere.

    With g the gradient of the output, h = g * weight, z the standardized input, n and m the
    counts of the mean and of the variance, and sums over what was pooled:

        dx = (h - sum(h) / n - z * sum(h * z) / m) / sqrt(var + eps)

    (Ioffe and Szegedy 2015, section 3, with n = m). Both sums are tables that `weight` and `bias`
    need anyway; with several processes they are the only thing to be sent.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        token_sums: Tensor,
        token_spread: Tensor,
        weight: Tensor,
        bias: Tensor,
        pooling: Pooling,
        eps: float,
    ) -> tuple[Tensor, ...]:
        wide, token_sums, token_spread, weight, bias = widen(
            x, token_sums, token_spread, weight, bias
        )
        with torch.autocast(x.device.type, enabled=False):
            found, centred = pooling.moments(wide, Weights(token_sums, token_spread))
            # One value has no spread: it comes out as 0, not as rounding noise over sqrt(eps).
            scale = (found.var + eps).rsqrt() * (found.count > 1)
            y = torch.addcmul(bias, centred, scale * weight).mul_(token_sums)
        ctx.save_for_backward(centred, token_sums, weight, scale, found.count, found.spread)
        ctx.pooling = pooling
        ctx.dtypes = x.dtype
        ctx.mark_non_differentiable(*found)
        return y.to(x.dtype), *found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        centred, tokens, weight, scale, count, spread = ctx.saved_tensors
        pooling: Pooling = ctx.pooling
        grad = grads[0].to(centred.dtype)
        with torch.autocast(grad.device.type, enabled=False):
            by_bias = pooling.over_tokens(tokens, grad)
            by_weight = pooling.over_tokens(tokens, grad * centred) * scale
            pulls = (pooling.over_features(table * weight) for table in (by_bias, by_weight))
            mean_pull, spread_pull = pooling.everywhere(torch.stack(tuple(pulls)))
            offset = -scale * mean_pull / count.clamp(min=1)
            slope = -scale * scale * spread_pull / spread.clamp(min=1)
            dx = torch.addcmul(offset, centred, slope)
            dx = dx.addcmul_(grad, scale * weight).mul_(tokens)
        dweight, dbias = by_weight.sum((0, 1)), by_bias.sum((0, 1))
        return dx.to(ctx.dtypes), None, None, dweight, dbias, None, None


def standardize(
    x: Float[Tensor, "B T D"],
    weights: Weights,
    weight: Float[Tensor, " D"],
    bias: Float[Tensor, " D"],
    *,
    pooling: Pooling,
    eps: float,
) -> tuple[Float[Tensor, "B T D"], Moments]:
    """Return the affine map of the standardized tokens, 0 at tokens that do not count.

    The output has `x`'s dtype; the moments are for reading and carry no gradient.
    """
    y, *found = _Standardize.apply(x, *weights, weight, bias, pooling, eps)
    return y, Moments(*found)
