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
    """Which tokens a statistic is made of: 1 where a token enters, else 0, `[B, T, 1]`.

    `spread` says which tokens the variance's count is made of, where these are others.
    """

    sums: Float[Tensor, "B T 1"]
    spread: Float[Tensor, "B T 1"] | None = None


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

    def over_tokens(self, x: Float[Tensor, "B T D"]) -> Table:
        """Sum over batch and time, as far as these are pooled."""
        return x.sum(self.tokens, keepdim=True) if self.tokens else x

    def over_features(self, table: Table) -> Table:
        """Sum over features, if these are pooled."""
        return table.sum(-1, keepdim=True) if "feature" in self.axes else table

    def moments(self, x: Float[Tensor, "B T D"], weights: Weights) -> Moments:
        """Return the moments of `x`."""
        rows = self.tokens == (0, 1) and _on_cpu(x)
        values = x.shape[-1] if "feature" in self.axes else 1
        count = values * self.everywhere(self.over_tokens(weights.sums))
        spread = count
        if weights.spread is not None:
            spread = values * self.everywhere(self.over_tokens(weights.spread))
        sums = self.over_tokens(x * weights.sums)
        mean = self.everywhere(self.over_features(sums)) / count.clamp(min=1)
        if rows:
            squares = _row_squares(x, weights.sums, mean)
        else:
            squares = self.over_tokens((x - mean).square() * weights.sums)
        var = self.everywhere(self.over_features(squares)) / spread.clamp(min=1)
        return Moments(mean, var, count, spread)

    def pulls(
        self, grad: Float[Tensor, "B T D"], x: Float[Tensor, "B T D"], mean: Table
    ) -> tuple[Table, Table]:
        """Sum `grad`, and `grad` times the centred `x`, over tokens."""
        if self.tokens == (0, 1) and _on_cpu(x):
            return _row_pulls(grad, x, mean)
        return self.over_tokens(grad), self.over_tokens(grad * (x - mean))


def _on_cpu(x: Tensor) -> bool:
    """Tell whether the sums over all rows of a matrix come from torch's own CPU kernels.

    These read each value once. Compiled code fuses the plain formula itself, other devices are
    fast at it, and autograd cannot see through the kernels.
    """
    recorded = x.requires_grad and torch.is_grad_enabled()
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not recorded


def _row_squares(x: Tensor, weights: Tensor, mean: Tensor) -> Tensor:
    # Rows without weight stand at the mean, where they add nothing.
    rows = torch.lerp(mean, x, weights).flatten(0, 1)
    middle, var = torch.batch_norm_update_stats(rows, None, None, 0.0)
    return len(rows) * (var + (middle - mean).square())


def _row_pulls(grad: Tensor, x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    # The gradients of batch norm's weight and bias, with a variance of 1.
    center = mean.flatten().expand(x.shape[-1])
    ones = torch.ones_like(center)
    _, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
        grad.flatten(0, 1),
        x.flatten(0, 1),
        ones,
        center.contiguous(),
        ones,
        None,
        None,
        False,
        0.0,
        [False, True, True],
    )
    return by_bias[None, None], by_weight[None, None]


def moments(x: Float[Tensor, "B T D"], weights: Float[Tensor, "B T"], axes: Set[str]) -> Moments:
    """Return the moments of `x` over `axes`, a subset of batch, time and feature, differentiably.

    `weights` is 1 at the tokens that count and 0 elsewhere. Where nothing counts the mean and the
    variance are 0.
    """
    wide, tokens = widen(x, weights.unsqueeze(-1))
    with torch.autocast(x.device.type, enabled=False):
        return Pooling(axes).moments(wide, Weights(tokens))


def _formula(
    x: Tensor, weights: Weights, weight: Tensor, bias: Tensor, pooling: Pooling, eps: float
) -> tuple[Tensor, Tensor, Moments]:
    """Return the output, what the centred input was multiplied by, and the moments."""
    with torch.autocast(x.device.type, enabled=False):
        found = pooling.moments(x, weights)
        # One value has no spread: it comes out as 0, not as rounding noise over sqrt(eps).
        scale = (found.var + eps).rsqrt() * (found.count > 1)
        slope = scale * weight
        y = torch.addcmul(bias - found.mean * slope, x, slope).mul_(weights.sums)
    return y, scale, found


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
        token_spread: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        pooling: Pooling,
        eps: float,
    ) -> tuple[Tensor, ...]:
        wide, token_sums, weight, bias = widen(x, token_sums, weight, bias)
        y, scale, found = _formula(
            wide, Weights(token_sums, token_spread), weight, bias, pooling, eps
        )
        ctx.save_for_backward(
            wide, token_sums, weight, scale, found.mean, found.count, found.spread
        )
        ctx.pooling = pooling
        ctx.dtype = x.dtype
        ctx.mark_non_differentiable(*found)
        return y.to(x.dtype), *found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, tokens, weight, scale, mean, count, spread = ctx.saved_tensors
        pooling: Pooling = ctx.pooling
        with torch.autocast(x.device.type, enabled=False):
            grad = grads[0] * tokens
            by_bias, by_weight = pooling.pulls(grad, x, mean)
            by_weight = by_weight * scale
            pulls = [pooling.over_features(table * weight) for table in (by_bias, by_weight)]
            mean_pull, spread_pull = pooling.everywhere(torch.stack(pulls))
            slope = -scale.square() * spread_pull / spread.clamp(min=1)
            offset = -scale * mean_pull / count.clamp(min=1) - mean * slope
            dx = torch.addcmul(offset, x, slope).addcmul_(grad, scale * weight).mul_(tokens)
        dweight, dbias = by_weight.sum((0, 1)), by_bias.sum((0, 1))
        return dx.to(ctx.dtype), None, None, dweight, dbias, None, None


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
    if torch.compiler.is_compiling():  # derives and fuses a backward by itself
        wide, token_sums, scale, shift = widen(x, weights.sums, weight, bias)
        masked = Weights(token_sums, weights.spread)
        y, _, found = _formula(wide, masked, scale, shift, pooling, eps)
        return y.to(x.dtype), Moments(*(table.detach() for table in found))
    y, *found = _Standardize.apply(x, *weights, weight, bias, pooling, eps)
    return y, Moments(*found)
