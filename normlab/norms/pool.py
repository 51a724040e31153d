"""Pooling: split tokens into groups and compute the mean and variance of each, without padding.

A pool reshapes `[B, P, D]` to `[G, S, R, D]`. Statistics are taken over `S`, and over `D` if
features are pooled, for each of the `G` groups and `R` positions. Batch norm has one group of all
tokens (S = B P, R = 1), batch norm per position has R = P, ghost batches are G groups of a few
sequences, and instance norm has one group per sequence.

Statistics are float32 for any input except float64, which stays float64. The variance takes two
passes over the data, since the difference of two large sums would lose precision.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

Axis = Literal["batch", "position", "feature"]
Padding = Literal["exclude", "include", "fill"]

Grouped = Float[Tensor, "G S R D"]
Table = Float[Tensor, "G 1 #R _"]  # as wide as x, or 1 where features are pooled
Bits = Int[Tensor, "*_ 1"]  # a mask with all bits set for a token that counts, else none
AllReduce = Callable[[Tensor], Tensor]


def widen(x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Return all tensors in the dtype of statistics: float64 for a float64 `x`, else float32."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return tuple(tensor.to(dtype) for tensor in (x, *others))


def here(table: Tensor) -> Tensor:
    """Return the table unchanged: the sum over a single process."""
    return table


@dataclass(frozen=True)
class Stream:
    """The token stream of a tensor: which tokens are real, and the position of the first column.

    `valid` is None if all tokens are real. `start` is above 0 only in incremental decoding.
    """

    valid: Bool[Tensor, "B P"] | None = None
    start: int = 0

    def real(self, x: Shaped[Tensor, "B P *_"]) -> Bool[Tensor, "B P"]:
        """Return the mask of real tokens of `x`."""
        if self.valid is None:
            return torch.ones((), dtype=torch.bool, device=x.device).expand(x.shape[:2])
        return self.valid

    def known_tokens(self, x: Shaped[Tensor, "B P *_"]) -> int | None:
        """Return the number of real tokens; None when compiling, or if it would need a GPU sync."""
        if self.valid is None:
            return x.shape[0] * x.shape[1]
        if not self.valid.is_cpu or torch.compiler.is_compiling():
            return None
        return len(self.rows)

    @cached_property
    def rows(self) -> Int[Tensor, "N"]:
        """The flat indices of the real tokens among all `B P`."""
        assert self.valid is not None
        return self.valid.flatten().nonzero().squeeze(1)

    @property
    def keys(self) -> Bool[Tensor, "B 1 1 P"] | None:
        """The mask of the tokens that attention may attend to; None for all."""
        return None if self.valid is None else self.valid[:, None, None, :]

    def repeated(self, times: int) -> "Stream":
        """Return the stream of a tensor with each row repeated `times` times consecutively."""
        if self.valid is None:
            return self
        return Stream(self.valid.repeat_interleave(times, dim=0), start=self.start)

    def picked(self, rows: Int[Tensor, "R"]) -> "Stream":
        """Return the stream of the given rows."""
        return self if self.valid is None else Stream(self.valid[rows], start=self.start)


ALL = Stream()
"""The stream of a tensor without padding: the default of every norm."""


class Groups(NamedTuple):
    """The values of each group, and which of them count.

    `kept` is the mask for `select`, None if all values count. The mean is a sum divided by `count`,
    the variance a sum divided by `var_count`. `rows` are the flat indices of the tokens in `x`;
    None if `x` holds all tokens.
    """

    x: Grouped
    kept: Bits | None
    count: Table
    var_count: Table
    rows: Int[Tensor, "N"] | None = None


class Moments(NamedTuple):
    """The mean and variance of each group, and the number of values behind them.

    The variance is divided by `var_count`, which equals `count` unless padding was filled in.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    var_count: Tensor

    def rows(self, positions: int) -> "Moments":
        """Return the moments of this process's positions; others may have longer sequences."""
        return Moments(*(table[:, :, :positions] for table in self))

    @torch.no_grad()
    def sums(self) -> Float[Tensor, "4 *tables"]:
        """Return float64 sums that can be added up across groups and batches."""
        mean, var, count, var_count = (table.double() for table in self)
        squares = var_count * var + count * mean.square()
        return torch.stack(torch.broadcast_tensors(count, var_count, count * mean, squares))

    @classmethod
    def pooled(cls, sums: Float[Tensor, "4 *tables"], dtype: torch.dtype) -> "Moments":
        """Return the moments of all values behind the `sums`, as if they were one batch."""
        count, var_count, firsts, seconds = sums.unbind()
        mean = firsts / count.clamp(min=1)
        var = (seconds - count * mean.square()).clamp(min=0) / var_count.clamp(min=1)
        return cls(*(t.to(dtype) for t in (mean, var, count[..., :1], var_count[..., :1])))


def select(x: Tensor, kept: Bits | None) -> Tensor:
    """Return `x` with masked values set to 0, even NaN; a boolean mask is much slower on a CPU."""
    return x if kept is None else _Select.apply(x, kept)


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
    """The axes to pool statistics over, optionally within ghost batches of a few sequences.

    A ghost batch has `ghost` neighboring sequences; the last one may have fewer (Hoffer, Hubara and
    Soudry 2017, algorithm 1).
    """

    axes: frozenset[Axis]
    ghost: int | None = None
    groups: int = 1  # groups of neighboring features; must be 1 if the batch is pooled

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of a grouped tensor to take statistics over."""
        return (1, 3) if "feature" in self.axes else (1,)

    @property
    def plain(self) -> bool:
        """Whether all tokens of the batch are one group."""
        return self.axes >= {"batch", "position"} and self.ghost is None

    def cut(self, x: Float[Tensor, "B P D"], stream: Stream, padding: str = "exclude") -> Groups:
        """Return the groups of `x` in the dtype of statistics, with 0 at values that do not count.

        On a CPU, a group of the whole batch holds only the real tokens, which is faster. With
        `padding` "fill", padding counts as equal to the mean: only `var_count` includes it. With
        "forward", `var_count` includes padding too, and the values at padding are kept.
        """
        tokens = x.shape[0] * x.shape[1]
        known = stream.known_tokens(x)
        bits = rows = None
        if known is not None and known < tokens and self.plain and padding == "exclude":
            rows = stream.rows
            x = x.flatten(0, 1).index_select(0, rows)[None]
        elif stream.valid is not None and known != tokens:
            bits = -stream.valid[..., None].int()
        (wide,) = widen(x)
        every = None
        if self.ghost is not None and len(x) % min(self.ghost, len(x)):  # a group is not full
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
        """Return the groups of `x`; groups that are not full are padded with 0."""
        if self.plain:
            return x.reshape(1, -1, 1, x.shape[2])
        if "batch" not in self.axes:
            return x.unflatten(2, (min(self.groups, x.shape[2]), -1))
        if self.ghost is None:
            groups = x.unsqueeze(0)
        else:
            size = min(self.ghost, len(x))
            groups = F.pad(x, (0, 0, 0, 0, 0, -len(x) % size)).unflatten(0, (-1, size))
        return groups.flatten(1, 2).unsqueeze(2) if "position" in self.axes else groups

    def join(
        self, y: Float[Tensor, "G S R _"], groups: Groups, *, like: Float[Tensor, "B P D"]
    ) -> Float[Tensor, "B P D"]:
        """Undo `cut`, in the shape and dtype of `like`; tokens omitted by `cut` become 0."""
        y = y.to(like.dtype)
        if groups.rows is not None:
            tokens = y.new_zeros(like.shape[0] * like.shape[1], like.shape[2])
            return tokens.index_copy_(0, groups.rows, y.flatten(0, 2)).view(like.shape)
        if self.plain or "batch" not in self.axes:
            return y.reshape(like.shape)
        if "position" in self.axes:
            y = y.squeeze(2).unflatten(1, (-1, like.shape[1]))
        return y.flatten(0, 1)[: len(like)]

    def moments(self, groups: Groups, all_reduce: AllReduce = here) -> Moments:
        """Return each group's mean and variance over all processes, summing with `all_reduce`."""
        x, kept, *counts = groups[:4]
        mean, count, var_count = self.mean(x, *counts, by=all_reduce)
        mean_here = mean[:, :, : x.shape[2]]
        # `x` is 0 where it does not count and `kept` is -1 where it does
        centered = x - mean_here if kept is None else torch.addcmul(x, mean_here, kept.to(x))
        squares = centered.square() if centered.requires_grad else centered.square_()
        squares = all_reduce(squares.sum(self.dims, keepdim=True))
        return Moments(mean, squares / var_count.clamp(min=1), count, var_count)

    def mean(
        self, values: Grouped, *counts: Table, by: AllReduce = here
    ) -> tuple[Table, *tuple[Table, ...]]:
        """Return the mean of each group, and the `counts` summed over processes by `by`.

        Values that do not count must be 0. The mean is the total sum divided by the first count.
        """
        sums, found = values.sum(self.dims, keepdim=True), list(counts)
        if by is not here:
            widths = [*(1 for _ in counts), sums.shape[3]]
            *found, sums = by(torch.cat([*counts, sums], 3)).split(widths, 3)
        return sums / found[0].clamp(min=1), *found
