"""The last values of a statistic: the window that MABN and Unified Norm average over."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Window:
    """The last K values of a statistic, `[K, D]`; `rows` is a buffer of the norm."""

    def __init__(self, rows: Float[Tensor, "K D"]) -> None:
        self.rows = rows

    def slot(self, updates: Int[Tensor, ""]) -> Bool[Tensor, "K 1"]:
        """Return a mask that marks the next batch's row after this many updates."""
        every = torch.arange(len(self.rows), device=updates.device)
        return (every == (updates + 1) % len(self.rows))[:, None]

    def full(self, updates: Int[Tensor, ""]) -> Bool[Tensor, ""]:
        """Return whether every row has a value after this many updates."""
        return updates >= len(self.rows)

    def with_newest(
        self, newest: Float[Tensor, "G D"], slot: Bool[Tensor, "K 1"]
    ) -> Float[Tensor, "G K D"]:
        """Return one copy of the window per ghost batch, with its newest value at `slot`."""
        return torch.where(slot, newest[:, None].to(self.rows), self.rows)

    def mean_of_others(
        self, slot: Bool[Tensor, "K 1"], full: Bool[Tensor, ""]
    ) -> tuple[Float[Tensor, "1 D"], Float[Tensor, "1 1"]]:
        """Return `a` and `b`: the mean of the window with a newest value v is `a + b v`.

        While the window is not `full`, its mean is the newest value: `a` is 0 and `b` 1.
        """
        left_out = slot >= full  # the newest value's row; every row while the window is not full
        others = self.rows.masked_fill(left_out, 0.0).mean(0, keepdim=True)
        return others, left_out.mean(0, dtype=self.rows.dtype, keepdim=True)
