"""Means and variances of groups of values in a batch, and how to pool them over batches.

A `Pool` cuts a batch, without its padding, into groups of values that share their statistics.
Statistics are float64 if the input is, and float32 otherwise. The variance takes two passes over
the data, because the difference of two large sums would lose precision.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from normlab.distributed.process_group import sum_over_ranks, world
from normlab.norms.tokens import Tokens

Axis = Literal["batch", "position", "feature"]
Padding = Literal["exclude", "include", "fill"]
AllReduce = Callable[[Tensor], Tensor]


def widen(x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Convert all tensors to the dtype of statistics: float64 if `x` is float64, else float32."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return tuple(tensor.to(dtype) for tensor in (x, *others))


def unchanged(table: Tensor) -> Tensor:
    """Return the table itself, which is its sum over a single process."""
    return table


class Moments(NamedTuple):
    """The mean and variance of each group, and the number of values that they are computed from.

    The tables broadcast, and the last dimension of the counts is 1. `var_count` is the divisor of
    the variance. It equals `count`, unless padding is filled with the mean.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    var_count: Tensor

    def at(self, positions: int) -> "Moments":
        """Return the moments of the first `positions` positions. Other processes may have more."""
        return Moments(*(table[..., :positions, :] for table in self))

    @torch.no_grad()
    def sums(self) -> Float[Tensor, "4 *tables"]:
        """Return both counts, the sum of values and the sum of squares, in float64.

        They can be added over groups and batches.
        """
        mean, var, count, var_count = (table.double() for table in self)
        squares = var_count * var + count * mean.square()
        return torch.stack(torch.broadcast_tensors(count, var_count, count * mean, squares))

    @classmethod
    def pooled(cls, sums: Float[Tensor, "4 *tables"], dtype: torch.dtype) -> "Moments":
        """Return the moments of all values that entered `sums`, pooled as one batch."""
        count, var_count, firsts, seconds = sums.unbind()
        mean = firsts / count.clamp(min=1)
        var = (seconds - count * mean.square()).clamp(min=0) / var_count.clamp(min=1)
        return cls(*(t.to(dtype) for t in (mean, var, count[..., :1], var_count[..., :1])))


class Groups(NamedTuple):
    """The dimensions of a batch that a group spans, and the number of values in each group.

    `count` has the shape of the groups' moments.
    """

    axes: tuple[int, ...]
    count: Tensor


class Values(NamedTuple):
    """A batch cut into groups, each with its own mean and variance.

    Attributes:
        x: the values: `[N, D]` if all tokens are one group, `[G, S, P, D]` for G ghost batches of S
            sequences, `[B, P, G, D / G]` for G groups of features, and otherwise `[B, P, D]`. They
            are 0 at tokens that are left out.
        real: 1 at tokens that enter the statistics and 0 at the others, with a last dimension of 1;
            None if all tokens enter.
        axes: the dimensions of `x` that a group spans.
        count: the divisor of each group's mean, in the shape of the moments.
        var_count: the divisor of each group's variance, in the same shape.
        packed: whether `x` holds only the real tokens.
    """

    x: Tensor
    real: Tensor | None
    axes: tuple[int, ...]
    count: Tensor
    var_count: Tensor
    packed: bool = False

    def clear(self, values: Tensor) -> Tensor:
        """Return `values` with 0 at the tokens that are left out."""
        return values if self.real is None else values.where(self.real.bool(), 0.0)

    def mean(
        self, values: Tensor, *counts: Tensor, by: AllReduce = unchanged
    ) -> tuple[Tensor, ...]:
        """Return the mean of each group, followed by the `counts`.

        `by` sums the groups' sums and the `counts` over processes. A mean is a group's sum divided
        by the first of the `counts`.
        """
        sums, reduced = values.sum(self.axes, keepdim=True), list(counts)
        if by is not unchanged:
            widths = [*(1 for _ in counts), sums.shape[-1]]
            *reduced, sums = by(torch.cat([*counts, sums], -1)).split(widths, -1)
        if self.packed and by is unchanged:  # the count is known without a device sync
            count = max(values.shape[0], 1) * (values.shape[1] if self.axes[1:] else 1)
            return sums / count, *reduced
        return sums / reduced[0].clamp(min=1), *reduced


@dataclass
class Pool:
    """How statistics are pooled: over which axes, in ghost batches or not, across processes or not.

    A ghost batch has `ghost` consecutive sequences; the last one may have fewer (Hoffer, Hubara and
    Soudry 2017, algorithm 1). With `sync`, the statistics of a batch span all processes. Processes
    train in step, but each evaluates its own batches, so the sums over processes are for training.
    """

    axes: frozenset[Axis]
    ghost: int | None = None
    sync: bool = False
    rows: int = 1  # rows in a table of statistics: several if positions have their own statistics
    one_position: bool = False  # each call has one position, the same in all processes
    groups: int = 1  # groups of contiguous features; 1 if the batch is pooled
    summed: AllReduce | None = None  # replaces the sum over processes if set

    @property
    def plain(self) -> bool:
        """Whether all tokens of the batch are one group."""
        return self.axes >= {"batch", "position"} and self.ghost is None

    @property
    def divided(self) -> bool:
        """Whether a batch is normalized in parts: ghost batches, or one part per process."""
        return self.ghost is not None or (not self.sync and world().size > 1)

    @property
    def over_processes(self) -> AllReduce:
        """The function that sums a table over all processes."""
        return self.summed or (unchanged if world().size == 1 else self._sum_over_processes)

    @property
    def over_group(self) -> AllReduce:
        """The function that sums a table over the processes that share their statistics."""
        return self.over_processes if self.sync and not self.divided else unchanged

    def _sum_over_processes(self, table: Tensor) -> Tensor:
        """Sum a table `[..., R, d]`. Short tables are padded, because lengths differ by process."""
        if self.rows > 1 and not self.one_position:
            table = F.pad(table, (0, 0, 0, self.rows - table.shape[-2]))
        return sum_over_ranks(table)

    def cut(self, x: Float[Tensor, "B P D"], tokens: Tokens, padding: str = "exclude") -> Values:
        """Return the groups of `x`, without its padding.

        With `padding="fill"`, padding is taken to equal the mean, so that only `var_count` includes
        it. With "forward", `var_count` also includes padding, and `x` keeps its values there.
        """
        counts_padding = padding in ("fill", "forward")
        if self.plain and not counts_padding:
            packed, axes = tokens.pack(x), (0, 1) if "feature" in self.axes else (0,)
            count = packed.new_full((1, 1), packed.shape[0] * (x.shape[2] if axes[1:] else 1))
            return Values(packed, None, axes, count, count, packed=True)
        full = tokens.known(x) == x.shape[0] * x.shape[1]
        real = None if full else tokens.real(x)[..., None].to(x)
        every = None
        # the last ghost batch is not full
        if self.ghost is not None and len(x) % min(self.ghost, len(x)):
            every = self.shape(torch.ones_like(x[..., :1]))
            real = every if real is None else self.shape(real)
        elif real is not None:
            real = self.shape(real)
        values, axes = self.shape(x), self._axes()
        count = self._count(values, real, axes)
        var_count = self._count(values, every, axes) if counts_padding else count
        cut = Values(values, real, axes, count, var_count)
        return cut if padding == "forward" else cut._replace(x=cut.clear(values))

    def _axes(self) -> tuple[int, ...]:
        """Return the dimensions that a group spans in the output of `shape`."""
        if self.plain:
            axes: tuple[int, ...] = (0,)
        elif "batch" not in self.axes:
            axes = (1,)
        elif self.ghost is not None:
            axes = (1, 2) if "position" in self.axes else (1,)
        else:
            axes = (0,)
        return (*axes, -1) if "feature" in self.axes else axes

    def _count(self, x: Tensor, real: Tensor | None, axes: tuple[int, ...]) -> Tensor:
        width = x.shape[-1] if "feature" in self.axes else 1
        mask = torch.ones_like(x[..., :1]) if real is None else real.expand(*x.shape[:-1], 1)
        return width * mask.sum(axes, keepdim=True)

    def shape(self, x: Float[Tensor, "B P _"]) -> Tensor:
        """Return `x` in the shape of `Values.x`, padding an incomplete ghost batch."""
        if self.plain:
            return x.flatten(0, 1)
        if self.groups > 1:
            return x.unflatten(2, (min(self.groups, x.shape[2]), -1))
        if self.ghost is None:
            return x
        size = min(self.ghost, len(x))
        return F.pad(x, (0, 0, 0, 0, 0, -len(x) % size)).unflatten(0, (-1, size))

    def join(
        self, y: Tensor, values: Values, tokens: Tokens, like: Float[Tensor, "B P D"]
    ) -> Tensor:
        """Undo `cut`: return `y` in the shape and dtype of `like`."""
        y = y.to(like.dtype)
        if values.packed:
            return tokens.unpack(y, like.shape)
        if self.ghost is not None:
            y = y.flatten(0, 1)[: len(like)]
        return y.reshape(like.shape)

    def moments(self, values: Values, by: AllReduce = unchanged) -> Moments:
        """Return each group's mean and variance. `by` sums over the processes that share them."""
        x = values.x
        mean, count, var_count = values.mean(x, values.count, values.var_count, by=by)
        local = mean[..., : x.shape[-2], :] if self.rows > 1 else mean
        squares = values.clear((x - local).square())
        squares = by(squares.sum(values.axes, keepdim=True))
        return Moments(mean, squares / var_count.clamp(min=1), count, var_count)

    def whole(self, moments: Moments, by: AllReduce = unchanged) -> Moments:
        """Pool the groups' moments over ghost batches, into `[rows, columns]`.

        `by` sums over processes, in case each has its own groups.
        """
        if self.divided:
            sums = moments.sums()
            sums = sums if sums.ndim == 3 else sums.flatten(1, -3).sum(1)
            return Moments.pooled(by(sums), moments.mean.dtype)
        return Moments(*(table.detach().flatten(0, -2) for table in moments))
