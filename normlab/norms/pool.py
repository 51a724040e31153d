"""What a norm pools: groups of tokens, and the mean and variance of each group without its padding.

A pool is a reshape, `[B, P, D]` to `[G, S, R, D]`. Statistics are taken over `S`, and over `D` if
features are pooled; the `G` groups and the `R` positions each have their own. Batch norm has one
group of all tokens (S = B P, R = 1), batch norm per position has R = P, ghost batches are G groups
of a few sequences, and instance norm has a group for each sequence.

Statistics are float32 whatever the input (float64 stays float64), and the variance takes two
passes: the difference of two large sums would cancel.
"""

import re
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
Mask = Bool[Tensor, "*_ 1"]
AllReduce = Callable[[Tensor], Tensor]

_INTERLEAVED = re.compile(r"interleaved-([1-9][0-9]{0,17})")


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

    `valid` is None where all are, as the pixels of an image: the stream is dense. `start` is the
    position of the first column, above 0 only in incremental decoding.
    """

    valid: Bool[Tensor, "B P"] | None = None
    start: int = 0

    @property
    def dense(self) -> bool:
        """Whether every token is real, of whatever tensor."""
        return self.valid is None

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
        return self._tokens

    @cached_property
    def _tokens(self) -> int:
        return int(self.valid.sum()) if self.valid is not None else 0

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
    """Which tokens enter a statistic: `mask`, `[B, P, 1]`, or None for all.

    `filled` is whether padding takes the place of the mean: it adds nothing to a sum of squares and
    is counted in its divisor. `known` is the number of tokens that enter, None where a device would
    have to be waited for; `dense` is whether the stream has no padding at all.
    """

    mask: Mask | None
    known: int | None
    filled: bool = False
    dense: bool = False


def real_tokens(stream: Stream, x: Tensor, *, filled: bool = False) -> Counted:
    """Count the real tokens of `x` and no others."""
    known = stream.known_tokens(x)
    if stream.valid is None or known == x.shape[0] * x.shape[1]:
        return all_tokens(x)._replace(dense=stream.dense)
    return Counted(stream.valid[..., None], known, filled=filled)


def all_tokens(x: Tensor) -> Counted:
    """Count padding as any token, as `nn.BatchNorm1d` does on a padded batch."""
    return Counted(None, x.shape[0] * x.shape[1], dense=True)


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
        return Moments(*(table[:, :, :positions] for table in self))


def select(x: Tensor, mask: Mask | None) -> Tensor:
    """Return `x` where the mask is true, else 0, even if `x` is NaN there."""
    if mask is None:
        return x
    if not x.is_cpu or torch.compiler.is_compiling():
        return torch.where(mask, x, 0.0)
    return _Select.apply(x, mask)


def bits(mask: Tensor, x: Tensor) -> Tensor:
    """Return the mask as the bits that are left of each value of `x`: all, or none."""
    return -mask.to(torch.int64 if x.dtype == torch.float64 else torch.int32)


def select_bits(x: Tensor, kept: Tensor) -> Tensor:
    """Do what `select` does on a CPU, in a fifth of the time, where no gradient is asked for."""
    return (x.view(kept.dtype) & kept).view(x.dtype)


class _Select(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        ctx.kept = bits(mask, x)
        return select_bits(x, ctx.kept)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return select_bits(grads[0], ctx.kept), None


def _every(x: Tensor) -> Mask:
    return torch.ones((), dtype=torch.bool, device=x.device).expand(*x.shape[:2], 1)


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
        found = _INTERLEAVED.fullmatch(str(ghost))
        if found is None and (isinstance(ghost, str) or ghost < 1):
            raise ValueError(
                f"norm.ghost={ghost} must be at least 1 sequence, or interleaved-N of at least 1, "
                "or null"
            )
        size = int(ghost if found is None else found[1])
        return replace(self, size=size, interleaved=found is not None)

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of a grouped tensor that statistics are taken over."""
        return (1, 3) if "feature" in self.axes else (1,)

    @property
    def plain(self) -> bool:
        """Whether all tokens of the batch are one group."""
        return self.axes >= {"batch", "position"} and self.size is None

    def cut(self, x: Tensor) -> Tensor:
        """Reshape `[B, P, D]` to `[G, S, R, D]`; a group that lacks a sequence ends with zeros."""
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

    def cut_mask(self, mask: Mask | None, x: Tensor) -> Tensor | None:
        """Reshape the mask of `x`; None where every value of every group counts."""
        short = self.size is not None and len(x) % self._largest(len(x)) > 0
        if mask is None and not short:
            return None
        return self.cut(_every(x) if mask is None else mask)

    def grouped(self, x: Tensor, counted: Counted) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the groups of `x`, the mask of what counts, and of what divides a variance."""
        filled = self.cut(_every(x)) if counted.filled else None
        return self.cut(x), self.cut_mask(counted.mask, x), filled

    def join(self, y: Tensor, *, like: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
        """Undo `cut` for a tensor of the shape of `like`."""
        if "batch" not in self.axes:
            return y.flatten(2)
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

    def counts(self, x: Grouped, mask: Tensor | None, all_reduce: AllReduce = here) -> Table:
        """Return how many values of each group count."""
        values = x.shape[3] if "feature" in self.axes else 1
        if mask is None:
            counts = x.new_full((x.shape[0], 1, x.shape[2], 1), x.shape[1])
        else:
            counts = mask.sum(1, keepdim=True).to(x.dtype)
        return values * all_reduce(counts)

    def moments(
        self,
        x: Grouped,
        mask: Tensor | None = None,
        divided: Tensor | None = None,
        *,
        all_reduce: AllReduce = here,
        squares: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Moments:
        """Return the moments of each group, through which a gradient flows.

        `x` is 0 where `mask` is false. `divided` marks what divides the variance where that is not
        `mask`. A kernel may sum the `squares` about a mean for each feature.
        """
        positions = x.shape[2]
        count = self.counts(x, mask, all_reduce)
        var_count = count if divided is None else self.counts(x, divided, all_reduce)
        mean = all_reduce(x.sum(self.dims, keepdim=True)) / count.clamp(min=1)
        center = mean[:, :, :positions]
        if squares is None:
            sums = select((x - center).square(), mask).sum(self.dims, keepdim=True)
        else:
            sums = self.over_features(squares(x, center))
        return Moments(mean, all_reduce(sums) / var_count.clamp(min=1), count, var_count)

    def over_features(self, table: Tensor) -> Tensor:
        """Sum a table over features, if these are pooled."""
        return table.sum(3, keepdim=True) if "feature" in self.axes else table

    def mean(
        self, values: Grouped, mask: Tensor | None, all_reduce: AllReduce = here
    ) -> tuple[Table, Table]:
        """Return how many tokens of each group count, and the mean of their values."""
        count = self.counts(values, mask).expand(-1, -1, -1, 1)
        sums = select(values, mask).sum(self.dims, keepdim=True)
        total = all_reduce(torch.cat([count, sums], 3))
        return total[..., :1], total[..., 1:] / total[..., :1].clamp(min=1)


@torch.no_grad()
def merge(batches: Sequence[Moments], all_reduce: AllReduce = here) -> Moments:
    """Return the moments of all groups of some batches as of one, `[R, d]` each.

    The merging is exact (Chan, Golub and LeVeque 1979): an average of the groups' variances would
    leave out how far their means are apart. `all_reduce` sums tables over processes.
    """
    if len(batches) == 1 and len(batches[0].mean) == 1 and all_reduce is here:
        return Moments(*(table.detach()[0, 0] for table in batches[0]))
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
