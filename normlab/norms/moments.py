"""Means and variances of batches, and how to pool them over several batches.

Statistics are float32 for any input except float64, which stays float64.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Axis = Literal["batch", "position", "feature"]
Padding = Literal["exclude", "include", "fill"]
AllReduce = Callable[[Tensor], Tensor]


def widen(x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Convert all tensors to the dtype of statistics: float64 if `x` is float64, else float32."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return tuple(tensor.to(dtype) for tensor in (x, *others))


def unchanged(table: Tensor) -> Tensor:
    """Return the table itself, which is the sum over a single process."""
    return table


class Moments(NamedTuple):
    """The mean and variance of each group, and the number of values they were computed from.

    The variance is divided by `var_count`, which equals `count` unless padding was filled in.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    var_count: Tensor

    def at(self, positions: int) -> "Moments":
        """Return the moments of the first `positions` positions; other processes may have more."""
        return Moments(*(table[..., :positions, :] for table in self))

    @torch.no_grad()
    def sums(self) -> Float[Tensor, "4 *tables"]:
        """Return float64 sums that can be added across groups and batches."""
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
