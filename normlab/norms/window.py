"""The window of a statistic's recent values, over which MABN and Unified Norm average."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Window:
    """The last K values of a statistic, in `rows` [K, D], a buffer of the norm."""

    def __init__(self, rows: Float[Tensor, "K D"]) -> None:
        self.rows = rows

    def next_row(self, updates: Int[Tensor, ""]) -> Bool[Tensor, "K 1"]:
        """Return a mask that is true at the row for the next batch, after this many updates."""
        every = torch.arange(len(self.rows), device=updates.device)
        return (every == (updates + 1) % len(self.rows))[:, None]

    def is_full(self, updates: Int[Tensor, ""]) -> Bool[Tensor, ""]:
        """Return whether every row has a value after this many updates."""
        return updates >= len(self.rows)

    def with_newest(
        self, newest: Float[Tensor, "G D"], next_row: Bool[Tensor, "K 1"]
    ) -> Float[Tensor, "G K D"]:
        """Return one copy of the window per ghost batch, with its newest value at `next_row`."""
        return torch.where(next_row, newest[:, None].to(self.rows), self.rows)

    def mean_of_others(
        self, next_row: Bool[Tensor, "K 1"], is_full: Bool[Tensor, ""]
    ) -> tuple[Float[Tensor, "1 D"], Float[Tensor, "1 1"]]:
        """Return `a` and `b` such that `a + b v` is the window's mean with a newest value v.

        While the window is not full, v takes the place of the mean: `a` is 0 and `b` is 1.
        """
        # Leave out the newest value's row, or every row while the window is not full.
        left_out = next_row >= is_full
        others = self.rows.masked_fill(left_out, 0.0).mean(0, keepdim=True)
        return others, left_out.mean(0, dtype=self.rows.dtype, keepdim=True)
