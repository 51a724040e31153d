"""Statistics of many batches as of one: what a norm is recalibrated by."""

import torch
from torch import Tensor

from normlab.distributed import sum_over_ranks
from normlab.norms.moments import Moments


class Tally:
    """The moments of many batches pooled into one, in float64: as of one long batch."""

    def __init__(self, mean: Tensor) -> None:
        """Start empty, with the rows and columns of a norm's running mean."""
        self.sums = mean.new_zeros(4, *mean.shape, dtype=torch.float64)

    def add(self, found: Moments, first: int = 0) -> None:
        """Add a batch to the rows from `first` on."""
        mean, var, count, spread = (table[0].double() for table in found)
        rows = mean.shape[0]
        for total, part in zip(
            self.sums,
            (count, spread, count * mean, spread * var + count * mean * mean),
            strict=True,
        ):
            total[first : first + rows] += part

    def result(self) -> Moments:
        """Return the pooled moments over all batches and processes, `[1, rows, cols]` each."""
        count, spread, firsts, seconds = sum_over_ranks(self.sums).unsqueeze(1)
        mean = firsts / count.clamp(min=1)
        var = (seconds - count * mean * mean).clamp(min=0) / spread.clamp(min=1)
        return Moments(mean, var, count, spread)
