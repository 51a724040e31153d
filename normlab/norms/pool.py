"""What a norm pools: groups of tokens, and the mean and variance of each group without its padding.

A pool is a reshape, `[B, P, D]` to `[G, S, R, D]`. Statistics are taken over `S`, and over `D` if
features are pooled; the `G` groups and the `R` positions each have their own. Batch norm has one
group of all tokens (S = B P, R = 1), batch norm per position has R = P, ghost batches are G groups
of a few sequences, and instance norm has a group for each sequence.

Statistics are float32 whatever the input (float64 stays float64), and the variance takes two
passes: the difference of two large sums would cancel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

Axis = Literal["batch", "position", "feature"]
Ghost = int | str | None
"""The sequences of a ghost batch: `8` neighbors, `interleaved-8`, or None for the whole batch."""
Padding = Literal["exclude", "include", "fill"]

Grouped = Float[Tensor, "G S R D"]
Table = Float[Tensor, "G 1 #R _"]  # as wide as x, or 1 where features are pooled
Bits = Int[Tensor, "*_ 1"]  # all bits of a token that counts, none of another
AllReduce = Callable[[Tensor], Tensor]


def widen(x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Return all tensors in the dtype of statistics: float64 for a float64 `x`, else float32."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return tuple(tensor.to(dtype) for tensor in (x, *others))


def here(table: Tensor) -> Tensor:
    """Return the table as it is: the sum over a single process."""
    return table


@dataclass(frozen=True)
class Stream:
    """The token stream a tensor belongs to: which tokens are real, and where the first one is.

    `valid` is None where all are, as the pixels of an image. `start` is the position of the first
    column, above 0 only in incremental decoding.
    """

    valid: Bool[Tensor, "B P"] | None = None
    start: int = 0

    def real(self, x: Shaped[Tensor, "B P *_"]) -> Bool[Tensor, "B P"]:
        """Return which tokens of `x` are real."""
        if self.valid is None:
            return torch.ones((), dtype=torch.bool, device=x.device).expand(x.shape[:2])
        return self.valid

    def known_tokens(self, x: Shaped[Tensor, "B P *_"]) -> int | None:
        """Return the number of real tokens of `x`; None where a device would have to be awaited."""
        if self.valid is None:
            return x.shape[0] * x.shape[1]
        if not self.valid.is_cpu or torch.compiler.is_compiling():
            return None
        return len(self.rows)

    @cached_property
    def rows(self) -> Int[Tensor, "N"]:
        """The numbers of the real tokens among all `B P`."""
        assert self.valid is not None
        return self.valid.flatten().nonzero().squeeze(1)

    @cached_property
    def bits(self) -> Int[Tensor, "B P 1"]:
        """All bits of a real token, none of padding."""
        assert self.valid is not None
        return -self.valid[..., None].int()

    @property
    def keys(self) -> Bool[Tensor, "B 1 1 P"] | None:
        """Which tokens every query of every head may look at; None for all."""
        return None if self.valid is None else self.valid[:, None, None, :]

    def repeated(self, times: int) -> "Stream":
        """Return the stream of a tensor that has each row this many times in succession."""
        if self.valid is None:
            return self
        return Stream(self.valid.repeat_interleave(times, dim=0), start=self.start)

    def picked(self, rows: Int[Tensor, "R"]) -> "Stream":
        """Return the stream of some rows."""
        return self if self.valid is None else Stream(self.valid[rows], start=self.start)


class Counted(NamedTuple):
    """Which tokens enter a statistic: `kept` is what `select` leaves out the others by, or None.

    `known` is the number of tokens that enter and `rows` their numbers among all, None where a
    device would have to be waited for; there are no `rows` where all enter.
    """

    kept: Bits | None
    known: int | None
    rows: Int[Tensor, "N"] | None = None


def real_tokens(stream: Stream, x: Tensor) -> Counted:
    """Count the real tokens of `x` and no others."""
    known = stream.known_tokens(x)
    if stream.valid is None or known == x.shape[0] * x.shape[1]:
        return all_tokens(x)
    # What is cached cannot be compiled.
    bits = -stream.valid[..., None].int() if known is None else stream.bits
    bits = bits.long() if x.dtype == torch.float64 else bits
    return Counted(bits, known, None if known is None else stream.rows)


def all_tokens(x: Tensor) -> Counted:
    """Count padding as any token, as `nn.BatchNorm1d` does on a padded batch."""
    return Counted(None, x.shape[0] * x.shape[1])


class Groups(NamedTuple):
    """The values of each group, 0 where they are not counted.

    `kept` is what `select` leaves out the others by, None where all are counted. `count` and
    `var_count` are the numbers of values that divide the sums of a mean and of a variance.
    """

    x: Grouped
    kept: Bits | None
    count: Table
    var_count: Table


class Moments(NamedTuple):
    """The mean and the variance of each group, and how many values they were made of.

    `var_count` is what divided the sum of squares: `count`, unless padding was filled.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    var_count: Tensor

    def rows(self, positions: int) -> "Moments":
        """Return the moments of the first positions, from those of the longest process."""
        if self.mean.shape[2] == positions:
            return self
        return Moments(*(table[:, :, :positions] for table in self))


Formula = Callable[[Grouped, Moments], Grouped]
"""Makes the output of values less their mean and the moments of their groups."""


def select(x: Tensor, kept: Bits | None) -> Tensor:
    """Return `x` where it is kept, else 0, even if `x` is NaN there.

    On a CPU bits take a fifth of the time of a mask that is broadcast.
    """
    if kept is None:
        return x
    return _Select.apply(x, kept) if x.requires_grad else (x.view(kept.dtype) & kept).view(x.dtype)


def select_(x: Tensor, kept: Bits | None) -> Tensor:
    """Do what `select` does in the place of `x`, without a gradient."""
    if kept is not None:
        x.view(kept.dtype).bitwise_and_(kept)
    return x


class _Select(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Bits) -> Tensor:
        ctx.kept = kept
        return (x.view(kept.dtype) & kept).view(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _Select.apply(grads[0], ctx.kept), None


def _every(x: Tensor) -> Bits:
    dtype = torch.int64 if x.dtype == torch.float64 else torch.int32
    return torch.full((), -1, dtype=dtype, device=x.device).expand(*x.shape[:2], 1)


@dataclass(frozen=True)
class Pool:
    """The axes that share statistics; `size` sequences are a batch of their own, if given.

    Groups are `size` neighbors, the last of what is left over. If they are `interleaved`, sequence
    i is in group i mod n of n = ceil(B / size), as in the view `[B / n, n C]` of Page 2019.
    """

    axes: frozenset[Axis]
    size: int | None = None
    interleaved: bool = False
    groups: int = 1
    """Of neighboring features, which are pooled separately; for pools without the batch."""

    def ghosts(self, ghost: Ghost) -> "Pool":
        """Return this pool over ghost batches (Hoffer, Hubara and Soudry 2017, algorithm 1).

        Raises ValueError for a group of no sequence, or another word.
        """
        if ghost is None:
            return self
        size = str(ghost).removeprefix("interleaved-")
        interleaved = size != str(ghost)
        if isinstance(ghost, str) != interleaved or not size.isdecimal() or int(size) < 1:
            raise ValueError(
                f"norm.ghost={ghost} must be at least 1 sequence, or interleaved-N of at least 1, "
                "or null"
            )
        return replace(self, size=int(size), interleaved=interleaved)

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of a grouped tensor that statistics are taken over."""
        return (1, 3) if "feature" in self.axes else (1,)

    @property
    def plain(self) -> bool:
        """Whether all tokens of the batch are one group."""
        return self.axes >= {"batch", "position"} and self.size is None

    def pack(self, x: Float[Tensor, "B P D"], counted: Counted) -> tuple[Tensor, Counted]:
        """Lay the tokens that count side by side, `[1, N, D]`, where all of them are one group.

        That is faster on a CPU than to mask the others. Other pools keep all tokens as they are.
        """
        if counted.rows is None or not self.plain:
            return x, counted
        rows = x.flatten(0, 1).index_select(0, counted.rows)[None]
        return rows, all_tokens(rows)

    def unpack(
        self, y: Tensor, counted: Counted, *, like: Float[Tensor, "B P D"]
    ) -> Float[Tensor, "B P D"]:
        """Undo `pack` for tokens of the shape of `like`: the others come out as 0."""
        if counted.rows is None or not self.plain:
            return y
        rows = y.new_zeros(len(like) * like.shape[1], like.shape[2])
        return rows.index_copy_(0, counted.rows, y.squeeze(0)).view(like.shape)

    def cut(self, x: Float[Tensor, "B P D"], counted: Counted, *, filled: bool = False) -> Groups:
        """Return the groups of `x`; a group that lacks a sequence ends with zeros.

        If padding is `filled`, it takes the place of the mean: it adds nothing to a sum of squares
        and is counted in its divisor.
        """
        short = self.size is not None and len(x) % self._largest(len(x)) > 0
        kept = counted.kept
        if kept is not None or short:
            kept = self.reshape(_every(x) if kept is None else kept)
        groups = select(self.reshape(x), kept)
        count = var_count = self._count(groups, kept)
        if filled and kept is not None:
            var_count = self._count(groups, self.reshape(_every(x)))
        return Groups(groups, kept, count, var_count)

    def _count(self, groups: Grouped, kept: Bits | None) -> Table:
        values = groups.shape[3] if "feature" in self.axes else 1
        if kept is None:
            size = (groups.shape[0], 1, groups.shape[2], 1)
            return groups.new_full(size, values * groups.shape[1])
        counted = kept.sum(1, keepdim=True, dtype=groups.dtype).abs_()  # all bits are -1
        return counted if values == 1 else values * counted

    def reshape(self, x: Shaped[Tensor, "B P _"]) -> Shaped[Tensor, "G S R _"]:
        """Return the groups of `x` as they are; what a group lacks is 0."""
        if self.plain:
            return x.reshape(1, -1, 1, x.shape[2])
        if "batch" not in self.axes:
            return x.unflatten(2, (min(self.groups, x.shape[2]), -1))
        if self.size is None:
            groups = x.unsqueeze(0)
        else:
            size = self._largest(len(x))
            filled = F.pad(x, (0, 0, 0, 0, 0, -len(x) % size))
            interleaved = filled.unflatten(0, (size, -1)).transpose(0, 1)
            groups = interleaved if self.interleaved else filled.unflatten(0, (-1, size))
        return groups.flatten(1, 2).unsqueeze(2) if "position" in self.axes else groups

    def join(
        self, y: Shaped[Tensor, "G S R _"], *, like: Float[Tensor, "B P D"]
    ) -> Float[Tensor, "B P D"]:
        """Undo `reshape` for a tensor of the shape of `like`."""
        if self.plain or "batch" not in self.axes:
            return y.reshape(like.shape)
        if "position" in self.axes:
            y = y.squeeze(2).unflatten(1, (-1, like.shape[1]))
        if self.interleaved:
            y = y.transpose(0, 1)
        y = y.flatten(0, 1)
        return y if len(y) == len(like) else y[: len(like)]

    def _largest(self, sequences: int) -> int:
        assert self.size is not None
        if not self.interleaved:
            return min(self.size, sequences)
        return -(-sequences // -(-sequences // self.size))

    def normalize(
        self,
        x: Float[Tensor, "B P D"],
        counted: Counted,
        formula: Formula,
        *,
        all_reduce: AllReduce = here,
        filled: bool = False,
    ) -> tuple[Float[Tensor, "B P D"], Moments]:
        """Return the formula of `x` and of the moments of its groups, and the moments."""
        groups = self.cut(x, counted, filled=filled)
        mean, count, var_count = self.mean(groups.x, groups.count, groups.var_count, by=all_reduce)
        centered = select(groups.x - mean[:, :, : groups.x.shape[2]], groups.kept)
        squares = all_reduce(centered.square().sum(self.dims, keepdim=True))
        moments = Moments(mean, squares / var_count.clamp(min=1), count, var_count)
        z = formula(centered, moments.rows(centered.shape[2]))
        return self.join(select(z, groups.kept), like=x), moments

    def mean(
        self, values: Grouped, *counts: Table, by: AllReduce = here
    ) -> tuple[Table, *tuple[Table, ...]]:
        """Return the mean of each group of values that are 0 where they do not count.

        It divides by the first of the counts, which follow, as `by` sums them over processes.
        """
        sums, found = values.sum(self.dims, keepdim=True), list(counts)
        if by is not here:
            widths = [*(1 for _ in counts), sums.shape[3]]
            *found, sums = by(torch.cat([*counts, sums], 3)).split(widths, 3)
        return sums / found[0].clamp(min=1), *found


@torch.no_grad()
def merge(batches: Sequence[Moments], all_reduce: AllReduce = here) -> Moments:
    """Return the moments of all groups of some batches as of one, `[R, d]` each.

    The merging is exact (Chan, Golub and LeVeque 1979): an average of the groups' variances would
    leave out how far their means are apart. `all_reduce` sums tables over processes.
    """
    if len(batches) == 1 and len(batches[0].mean) == 1 and all_reduce is here:
        return Moments(*(table.detach().flatten(0, 2) for table in batches[0]))
    mean, var, count, var_count = (
        torch.cat([table.detach()[:, 0] for table in tables])
        for tables in zip(*batches, strict=True)
    )
    width = mean.shape[-1]
    counts, sums = all_reduce(torch.cat([count, count * mean], -1).sum(0)).split([1, width], -1)
    middle = sums / counts.clamp(min=1)
    squares = var_count * var + count * (mean - middle).square()
    divided, squares = all_reduce(torch.cat([var_count, squares], -1).sum(0)).split([1, width], -1)
    return Moments(middle, squares / divided.clamp(min=1), counts, divided)
