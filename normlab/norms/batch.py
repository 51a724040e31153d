"""The norms with the batch axis: one class, and the axes that go with the batch.

BN's open questions are values: how padding counts (`padding`), what eval normalizes by
(`eval_stats`), whether processes share statistics (`sync`), what the running statistics keep
(`momentum`, `unbiased`), and how many sequences are a batch (`ghost`). Each is resolved at
construction.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from normlab.distributed import all_reduce_sum, world
from normlab.norms.base import Axis, EvalStats, RunningNorm, Stream
from normlab.norms.ghost import Ghost, GhostBatches
from normlab.norms.moments import Moments, Pooling, Weights, standardize, widen
from normlab.norms.stream import real_tokens

Padding = Literal["exclude", "include", "fill"]


def include(stream: Stream, x: Tensor) -> Weights:
    """Pool padding like any token, as `nn.BatchNorm1d` on the padded batch does."""
    return real_tokens(Stream(), x)


def fill(stream: Stream, x: Tensor) -> Weights:
    """Overwrite padding by the mean of real tokens, then pool everything.

    The mean stays right; the variance shrinks by real tokens over all tokens (PowerNorm's code).
    """
    return real_tokens(stream, x)._replace(spread=include(stream, x).sums)


_WEIGH: dict[Padding, Callable[[Stream, Tensor], Weights]] = {
    "exclude": real_tokens,  # the true masked moments
    "include": include,
    "fill": fill,
}


class BatchNorm(RunningNorm):
    """Batch norm as in the papers: each feature over all tokens of the batch.

    Ioffe and Szegedy 2015, algorithm 1, with the tokens of a batch as its examples. Padding comes
    out as 0 where the batch gives the statistics, unless `padding` includes it.

    `ghost` makes a batch of every so many sequences (see `GhostBatches`); None, of all.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position"})
    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        dim: int,
        *,
        eps: float,
        momentum: float,
        affine: bool,
        padding: Padding,
        eval_stats: EvalStats,
        sync: bool,
        unbiased: bool,
        ghost: Ghost = None,
    ) -> None:
        super().__init__(
            dim, eps=eps, affine=affine, eval_stats=eval_stats, sync=sync, momentum=momentum
        )
        self.unbiased = unbiased
        self.ghosts = None if ghost is None else GhostBatches(ghost, self.pools)
        self.padding: Padding = padding
        self.weigh = _WEIGH[padding]
        self.keep_rows(1)

    def keep_rows(self, rows: int) -> None:
        """Start running statistics for `rows` positions."""
        cols = 1 if "feature" in self.pools else self.dim
        self.keep("running_mean", torch.zeros(rows, cols))
        self.keep("running_var", torch.ones(rows, cols))
        self.alone = Pooling(self.pools)
        self.together = (
            Pooling(self.pools, partial(sum_rows_over_ranks, rows)) if self.sync else self.alone
        )

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` by the statistics of the batch, or by the running ones.

        Raises:
            ValueError: the batch is too small for the statistics, or too long for their rows.
        """
        rows = self.rows(stream.start, x.shape[1])
        if not self.by_batch:
            return self.by_running(x, rows)
        weights = self.weigh(stream, x)
        self.require_tokens(weights)
        pooling = self.together if self.synced else self.alone  # evaluation shards differ in length
        if self.ghosts is None:
            y, found = self.standardize(x, weights, pooling)
        else:
            y, found = self.ghosts.apart(self.standardize, x, weights, pooling)
        self.observe(found, rows.start)
        return y

    def standardize(
        self, x: Float[Tensor, "B P D"], weights: Weights, pooling: Pooling
    ) -> tuple[Float[Tensor, "B P D"], Moments]:
        """Return `x` by the statistics of one batch, or of the ghost batches, and these."""
        return standardize(x, weights, self.weight, self.bias, pooling=pooling, eps=self.eps)

    def running_moments(self) -> tuple[Tensor, Tensor]:
        """Return the running mean and variance, `[rows, cols]`."""
        return self.running_mean, self.running_var

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        """Move the running mean and variance of some rows by a share."""
        self.running_mean[rows].lerp_(mean, share)
        self.running_var[rows].lerp_(var, share)

    def estimates(self, found: Moments) -> tuple[Tensor, Tensor]:
        """Return the mean and variance to keep of `found`, `[P or 1, D or 1]` each.

        `unbiased` keeps the variance's n - 1 estimate, while batches are normalized by the
        n one, as `nn.BatchNorm1d` does.
        """
        freedom = (found.spread - 1).clamp(min=1)
        var = found.var * (found.spread / freedom) if self.unbiased else found.var
        return found.mean[0].to(self.running_mean), var[0].to(self.running_var)

    def batch_divisor(self) -> Tensor | None:
        """Return the standard deviation of the last training batch, eps in it, `[cols]`."""
        if self.seen is None or self.ghosts is not None or len(self.running_mean) > 1:
            return None
        return 1 / self.inverse(self.seen.var.flatten())

    def by_running(self, x: Float[Tensor, "B P D"], rows: slice) -> Float[Tensor, "B P D"]:
        """Return `x` by the running statistics: one multiply and add per value."""
        wide, weight, bias, mean, var = widen(
            x, self.weight, self.bias, *(moment[rows] for moment in self.running_moments())
        )
        scale = weight * self.inverse(var)
        return torch.addcmul(bias - mean * scale, wide, scale).to(x.dtype)

    def inverse(self, var: Tensor) -> Tensor:
        """Return what values are multiplied by for their variance."""
        return (var + self.eps).rsqrt()

    def fixed_map(self) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]] | None:
        """Return what `by_running` does, if it is the same at every position."""
        moments = self.running_moments()
        if self.by_batch or len(moments[0]) > 1:
            return None
        wide = (self.weight, self.bias, *(moment[0] for moment in moments))
        weight, bias, mean, var = (table.detach().double() for table in wide)
        scale = weight * self.inverse(var)
        return scale, bias - mean * scale

    def rows(self, start: int, length: int) -> slice:
        """Return the rows of running statistics for `length` positions from `start`."""
        return slice(0, 1)

    def require_tokens(self, weights: Weights) -> None:
        """Refuse to train on the statistics of a single token, which would erase it.

        Where how many tokens are real is not known, only the batch's shape is looked at.
        """
        tokens = weights.sums.numel() if weights.known is None else weights.known
        if self.by_position:
            return
        if self.training and tokens < 2 and (not self.sync or world().size == 1):
            raise ValueError(
                f"{type(self).__name__} cannot train on a batch of one token: its statistics pool "
                "over the batch and need at least two. Raise batch_size or max_tokens, drop "
                "one-token sentences, or take a norm that does not pool over the batch (norm=ln)"
            )


class GlobalNorm(BatchNorm):
    """One mean and one variance for all features of all tokens of the batch."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position", "feature"})


class PositionBatchNorm(BatchNorm):
    """Batch norm per position: each feature over the tokens that share a position.

    At a far position one sequence may be alone in the batch. One value has no spread, so it comes
    out as the bias, and the running row stays as it was. Where a recurrence gives one position at a
    time, those beyond the last row share it (Cooijmans et al. 2017, section 3).
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch"})

    def __init__(
        self,
        dim: int,
        *,
        eps: float,
        momentum: float,
        affine: bool,
        padding: Padding,
        eval_stats: EvalStats,
        sync: bool,
        unbiased: bool,
        num_positions: int,
        ghost: Ghost = None,
    ) -> None:
        super().__init__(
            dim,
            eps=eps,
            momentum=momentum,
            affine=affine,
            padding=padding,
            eval_stats=eval_stats,
            sync=sync,
            unbiased=unbiased,
            ghost=ghost,
        )
        self.num_positions = self.most_positions = num_positions
        self.keep_rows(num_positions)

    def rows(self, start: int, length: int) -> slice:
        """Return the rows of running statistics for `length` positions from `start`.

        Raises:
            ValueError: a position lies beyond the last row, and they do not come one at a time.
        """
        if self.by_position:
            start = min(start, self.num_positions - length)
        if start + length > self.num_positions:
            raise ValueError(
                f"{type(self).__name__} keeps statistics for num_positions={self.num_positions} "
                f"positions, and position {start + length - 1} came: raise norm.num_positions or "
                "lower the maximal length"
            )
        return slice(start, start + length)

    def take_positions(self) -> None:
        """Take one position at a time; then tables are alike on all processes as they are."""
        super().take_positions()
        if self.sync:
            self.together = Pooling(self.pools, all_reduce_sum)

    def require_tokens(self, weights: Weights) -> None:
        """Accept any number: a position with one token is dealt with by itself."""


class SampleBatchNorm(PositionBatchNorm):
    """All features of the tokens that share a position: what the documents draw as batch norm.

    A token alone at its position is normalized over its features, as layer norm would.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "feature"})


def sum_rows_over_ranks(rows: int, table: Tensor) -> Tensor:
    """Sum a table `[..., t, d]` over processes, whose batches may differ in length up to `rows`."""
    if world().size == 1:
        return table
    length = table.shape[-2]
    return all_reduce_sum(F.pad(table, (0, 0, 0, rows - length)))[..., :length, :]
