"""What a norm pools: groups of tokens, and the mean and variance of each group without its padding.

A pool is a reshape, `[B, P, D]` to `[G, S, R, D]`. Statistics are taken over `S`, and over `D` if
features are pooled; the `G` groups and the `R` positions each have their own. Batch norm has one
group of all tokens (S = B P, R = 1), batch norm per position has R = P, ghost batches are G groups
of a few sequences, and instance norm has a group for each sequence.

Statistics are float32 whatever the input (float64 stays float64), and the variance takes two
passes: the difference of two large sums would cancel.
"""

from collections.abc import Callable
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
        """Return the number of real tokens of `x`; None where that would wait for a device."""
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


class Groups(NamedTuple):
    """The values of each group, and which of them count.

    `kept` is what `select` leaves padding out by, None where all values count. `count` and
    `var_count` are the numbers of values that divide the sums of a mean and of a variance. `rows`
    are the numbers of the tokens that are here; None if all are.
    """

    x: Grouped
    kept: Bits | None
    count: Table
    var_count: Table
    rows: Int[Tensor, "N"] | None = None


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

    @torch.no_grad()
    def sums(self) -> Float[Tensor, "4 *tables"]:
        """Return what adds up over groups and batches, in float64; `pooled` is the way back."""
        mean, var, count, var_count = (table.double() for table in self)
        squares = var_count * var + count * mean.square()
        return torch.stack(torch.broadcast_tensors(count, var_count, count * mean, squares))


def pooled(sums: Float[Tensor, "4 *tables"], dtype: torch.dtype) -> Moments:
    """Return the moments of all values that were summed, as of one batch."""
    count, var_count, firsts, seconds = sums.unbind()
    mean = firsts / count.clamp(min=1)
    var = (seconds - count * mean.square()).clamp(min=0) / var_count.clamp(min=1)
    return Moments(*(t.to(dtype) for t in (mean, var, count[..., :1], var_count[..., :1])))


def select(x: Tensor, kept: Bits | None) -> Tensor:
    """Return `x` where it is kept, else 0, even if `x` is NaN there.

    On a CPU bits take a fifth of the time of a mask that is broadcast.
    """
    if kept is None:
        return x
    return _Select.apply(x, kept) if x.requires_grad else (x.view(kept.dtype) & kept).view(x.dtype)


class _Select(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Bits) -> Tensor:
        ctx.kept = kept
        return (x.view(kept.dtype) & kept).view(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _Select.apply(grads[0], ctx.kept), None


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
    """Groups of neighboring features, each with its own statistics; no pool over the batch."""

    def ghosts(self, ghost: Ghost) -> "Pool":
        """Return this pool over ghost batches (Hoffer, Hubara and Soudry 2017, algorithm 1)."""
        if ghost is None:
            return self
        interleaved, _, size = str(ghost).rpartition("-")
        return replace(self, size=int(size), interleaved=bool(interleaved))

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of a grouped tensor that statistics are taken over."""
        return (1, 3) if "feature" in self.axes else (1,)

    @property
    def plain(self) -> bool:
        """Whether all tokens of the batch are one group."""
        return self.axes >= {"batch", "position"} and self.size is None

    def cut(self, x: Float[Tensor, "B P D"], stream: Stream, padding: str = "exclude") -> Groups:
        """Return the groups of `x` in the dtype of statistics; values that do not count are 0.

        On a CPU a group of the whole batch has the real tokens alone, side by side, which is faster
        than to mask the others. If padding is to `fill`, it takes the place of the mean: it adds
        nothing to a sum of squares and is counted in its divisor. In a `forward` pass alone,
        `var_count` counts padding, too, and its values stay.
        """
        tokens = x.shape[0] * x.shape[1]
        known = stream.known_tokens(x)
        bits = rows = None
        if known is not None and known < tokens and self.plain and padding == "exclude":
            rows = stream.rows
            x = x.flatten(0, 1).index_select(0, rows)[None]
        elif stream.valid is not None and known != tokens:  # what is cached cannot be compiled
            bits = -stream.valid[..., None].int() if known is None else stream.bits
        (wide,) = widen(x)
        every = None
        if self.size is not None and len(x) % self._largest(len(x)):  # a group lacks a sequence
            every = self.reshape(torch.full_like(wide[..., :1], -1, dtype=torch.int))
        kept = every if bits is None else self.reshape(bits)
        values = self.reshape(wide)
        count = var_count = self._count(values, kept)
        if kept is not None:
            kept = kept.long() if wide.dtype == torch.float64 else kept
            if padding in ("fill", "forward"):
                var_count = self._count(values, every)
        if padding != "forward":
            values = select(values, kept)
        return Groups(values, kept, count, var_count, rows)

    def _count(self, groups: Grouped, kept: Bits | None) -> Table:
        values = groups.shape[3] if "feature" in self.axes else 1
        if kept is None:
            size = (groups.shape[0], 1, groups.shape[2], 1)
            return groups.new_full(size, values * groups.shape[1])
        counted = kept.sum(1, keepdim=True, dtype=groups.dtype).abs_()  # all bits are -1
        return counted if values == 1 else values * counted

    def reshape(self, x: Shaped[Tensor, "B P _"]) -> Shaped[Tensor, "G S R _"]:
        """Return the groups of `x`; what a group lacks is 0."""
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
        self, y: Float[Tensor, "G S R _"], groups: Groups, *, like: Float[Tensor, "B P D"]
    ) -> Float[Tensor, "B P D"]:
        """Undo `cut` for a tensor of the shape and dtype of `like`; tokens left out are 0."""
        y = y.to(like.dtype)
        if groups.rows is not None:
            tokens = y.new_zeros(like.shape[0] * like.shape[1], like.shape[2])
            return tokens.index_copy_(0, groups.rows, y.flatten(0, 2)).view(like.shape)
        if self.plain or "batch" not in self.axes:
            return y.reshape(like.shape)
        if "position" in self.axes:
            y = y.squeeze(2).unflatten(1, (-1, like.shape[1]))
        if self.interleaved:
            y = y.transpose(0, 1)
        return y.flatten(0, 1)[: len(like)]

    def _largest(self, sequences: int) -> int:
        assert self.size is not None
        if not self.interleaved:
            return min(self.size, sequences)
        return -(-sequences // -(-sequences // self.size))

    def moments(self, groups: Groups, all_reduce: AllReduce = here) -> Moments:
        """Return the mean and the variance of each group, as `all_reduce` sums over processes."""
        x, kept, *counts = groups[:4]
        mean, count, var_count = self.mean(x, *counts, by=all_reduce)
        centered = select(x - mean[:, :, : x.shape[2]], kept)
        squares = all_reduce(centered.square().sum(self.dims, keepdim=True))
        return Moments(mean, squares / var_count.clamp(min=1), count, var_count)

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
