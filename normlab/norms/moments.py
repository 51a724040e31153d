"""Decides how statistics are taken: masked moments over any subset of batch, position and feature.

`x` is `[B, P, D]`. A set of axes to pool over turns it into tables of one size less along each
pooled axis, kept as 1 so that they broadcast against `x`. Statistics are fp32 whatever the input
(float64 stays float64), and the variance takes two passes: the mean first, then the squares about
it, since the difference of two large sums would cancel.

`standardize` is what every norm with masked statistics calls. Its backward is written by hand, and
on a CPU its time is that of its passes over memory: sums over all tokens come from torch's kernels
of batch norm, which read each value once, and where every token counts nothing is masked. Batch
norm of a dense stream is torch's own.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from normlab.distributed import world
from normlab.norms import kernels

Table = Float[Tensor, "#b #p #d"]  # an axis of x, or 1 where it was pooled


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
    """Which tokens a statistic is made of: 1 where a token enters, else 0, `[B, P, 1]`.

    `spread` says which tokens the variance's count is made of, where these are others. `known` is
    how many tokens enter, where that is known without waiting for a device. `dense` is whether all
    do because the stream has no padding.
    """

    sums: Float[Tensor, "B P 1"]
    spread: Float[Tensor, "B P 1"] | None = None
    known: int | None = None
    dense: bool = False


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
    shape that it was given. `groups` cuts the features, where these are pooled, into groups of
    neighbours that are pooled by themselves.
    """

    axes: Set[str]
    everywhere: Callable[[Tensor], Tensor] = here
    groups: int = 1

    @property
    def tokens(self) -> tuple[int, ...]:
        """The dimensions of `x` to sum over among batch and position."""
        return tuple(dim for dim, axis in enumerate(("batch", "position")) if axis in self.axes)

    def over_tokens(self, x: Float[Tensor, "B P D"]) -> Table:
        """Sum over batch and position, as far as these are pooled."""
        return x.sum(self.tokens, keepdim=True) if self.tokens else x

    def over_features(self, table: Table) -> Table:
        """Sum over features, if these are pooled; groups as columns of equal values."""
        if "feature" not in self.axes:
            return table
        if self.groups == 1:
            return table.sum(-1, keepdim=True)
        sums = table.unflatten(-1, (self.groups, -1)).sum(-1, keepdim=True)
        return sums.expand(*sums.shape[:-1], table.shape[-1] // self.groups).flatten(-2)

    def moments(self, x: Float[Tensor, "B P D"], weights: Weights, mask: Tensor | None) -> Moments:
        """Return the moments of `x`; `mask` is `weights.sums`, or None where every token counts."""
        values = x.shape[-1] // self.groups if "feature" in self.axes else 1
        count = values * self.everywhere(self.over_tokens(weights.sums))
        spread = count
        if weights.spread is not None:
            spread = values * self.everywhere(self.over_tokens(weights.spread.to(x)))
        sums = self.over_tokens(_masked(x, mask))
        mean = self.everywhere(self.over_features(sums)) / count.clamp(min=1)
        squares = self.everywhere(self.over_features(self.squares(x, mask, mean)))
        return Moments(mean, squares / spread.clamp(min=1), count, spread)

    def squares(self, x: Float[Tensor, "B P D"], mask: Tensor | None, mean: Table) -> Table:
        """Sum the squares about the mean over tokens."""
        if self.by_rows(x):
            return kernels.row_squares(x, mask, mean)
        return self.over_tokens(_masked_((x - mean).square_(), mask))

    def pulls(
        self, grad: Float[Tensor, "B P D"], x: Float[Tensor, "B P D"], mean: Table
    ) -> tuple[Table, Table]:
        """Sum `grad`, and `grad` times the centred `x`, over tokens."""
        if self.by_rows(x):
            return kernels.row_pulls(grad, x, mean)
        return self.over_tokens(grad), self.over_tokens((x - mean).mul_(grad))

    def by_rows(self, x: Tensor) -> bool:
        """Tell whether the sums are those of all rows of a matrix, by torch's kernels for a CPU.

        Compiled code fuses the plain formula itself, and other devices are fast at it.
        """
        return x.is_cpu and not torch.compiler.is_compiling() and self.tokens == (0, 1)

    @property
    def is_batch_norm(self) -> bool:
        """Whether each feature is pooled over all tokens of this process, and no others."""
        own = self.everywhere is here or world().size == 1
        return own and self.axes == {"batch", "position"}


@torch.no_grad()
def merge(batches: Sequence[Moments], all_reduce: Callable[[Tensor], Tensor] = here) -> Moments:
    """Return the moments of several batches as of one (Chan, Golub and LeVeque 1979).

    Their tables are `[G, P or 1, D or 1]`, of G batches. `all_reduce` sums tables over processes.
    """
    if all_reduce is here and sum(len(batch.mean) for batch in batches) == 1:
        return batches[0]
    mean, var, count, spread = (torch.cat(tables) for tables in zip(*batches, strict=True))
    firsts = torch.stack([count.expand_as(mean), count * mean])
    counts, total = all_reduce(firsts.sum(1, keepdim=True))
    both = all_reduce(spread.sum(0, keepdim=True))
    middle = total / counts.clamp(min=1)
    apart = count * (mean - middle).square()
    squares = all_reduce((spread * var + apart).sum(0, keepdim=True))
    # All columns of a count are alike, and a count has one where the norm's has.
    return Moments(middle, squares / both.clamp(min=1), counts[..., : count.shape[-1]], both)


def moments_with_gradient(x: Float[Tensor, "B P D"], weights: Weights, pooling: Pooling) -> Moments:
    """Return the moments of the tokens that count, each feature's by itself, for autograd.

    `x` is float32 or float64, and `pooling` pools no features.
    """
    sums = weights.sums.to(x)
    count = pooling.everywhere(pooling.over_tokens(sums))
    spread = count
    if weights.spread is not None:
        spread = pooling.everywhere(pooling.over_tokens(weights.spread.to(x)))
    mean = pooling.everywhere(pooling.over_tokens(x * sums)) / count.clamp(min=1)
    squares = pooling.everywhere(pooling.over_tokens((x - mean).square() * sums))
    return Moments(mean, squares / spread.clamp(min=1), count, spread)


def _masked(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x * mask


def _masked_(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x.mul_(mask)


def _affine(
    x: Tensor, mask: Tensor | None, weight: Tensor, bias: Tensor, found: Moments, eps: float
) -> tuple[Tensor, Tensor]:
    """Return the output, and what the centred input was multiplied by before `weight`."""
    # One value has no spread: it comes out as 0, not as rounding noise over sqrt(eps).
    scale = (found.var + eps).rsqrt() * (found.count > 1)
    slope = scale * weight
    y = torch.addcmul(torch.addcmul(bias, found.mean, slope, value=-1), x, slope)
    return _masked_(y, mask), scale


class _Standardize(torch.autograd.Function):
    """`weight * (x - mean) / sqrt(var + eps) + bias` at counted tokens, 0 elsewhere.

    `found` are the moments of `x`. With g the gradient of the output, h = g * weight, z the
    standardized input, n and m the counts of the mean and of the variance, and sums over what was
    pooled:

        dx = (h - sum(h) / n - z * sum(h * z) / m) / sqrt(var + eps)

    (Ioffe and Szegedy 2015, section 3, with n = m). Both sums are tables that `weight` and `bias`
    need anyway; with several processes they are the only thing to be sent.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mask: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        found: Moments,
        pooling: Pooling,
        eps: float,
    ) -> Tensor:
        y, scale = _affine(x, mask, weight, bias, found, eps)
        counts = torch.stack([found.count, found.spread]).clamp_(min=1)
        ctx.save_for_backward(x, mask, weight, scale, found.mean, counts)
        ctx.pooling = pooling
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mask, weight, scale, mean, counts = ctx.saved_tensors
        pooling: Pooling = ctx.pooling
        shown = _masked(grad, mask)
        by_bias, by_weight = pooling.pulls(shown, x, mean)
        by_weight = by_weight * scale
        pulls = [pooling.over_features(table * weight) for table in (by_bias, by_weight)]
        mean_pull, spread_pull = pooling.everywhere(torch.stack(pulls)) * scale / counts
        slope = scale * spread_pull
        offset = mean * slope - mean_pull
        room = None if mask is None else shown
        dx = torch.addcmul(offset, x, slope, value=-1, out=room).addcmul_(grad, scale * weight)
        dweight, dbias = by_weight.sum((0, 1)), by_bias.sum((0, 1))
        return _masked_(dx, mask), None, dweight, dbias, None, None, None


def standardize(
    x: Float[Tensor, "B P D"],
    weights: Weights,
    weight: Float[Tensor, " D"],
    bias: Float[Tensor, " D"],
    *,
    pooling: Pooling,
    eps: float,
) -> tuple[Float[Tensor, "B P D"], Moments]:
    """Return the affine map of the standardized tokens, 0 at tokens that do not count.

    The output has `x`'s dtype; the moments are for reading and carry no gradient.
    """
    wide, sums, weight, bias = widen(x, weights.sums, weight, bias)
    weights = weights._replace(sums=sums)
    mask = None if weights.known == sums.numel() else sums
    if torch.compiler.is_compiling():  # derives and fuses a backward by itself
        found = pooling.moments(wide, weights, mask)
        y, _ = _affine(wide, mask, weight, bias, found, eps)
        return y.to(x.dtype), Moments(*(table.detach() for table in found))
    if weights.dense and pooling.is_batch_norm:
        y, mean, var = kernels.batch_norm(wide, weight, bias, eps)
        count = torch.full_like(mean[..., :1], sums.numel())
        return y.to(x.dtype), Moments(mean, var, count, count)
    with torch.no_grad():
        found = pooling.moments(wide, weights, mask)
    y = _Standardize.apply(wide, mask, weight, bias, found, pooling, eps)
    return y.to(x.dtype), found
