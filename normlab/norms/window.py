"""The last values of a statistic: the window that MABN and Unified Norm average over."""

from jaxtyping import Float
from torch import Tensor


class Window:
    """The last K values of a statistic, `[K, D]`; `rows` is a buffer of the norm."""

    def __init__(self, rows: Float[Tensor, "K D"]) -> None:
        self.rows = rows

    def slot(self, batches: int) -> int:
        """Return the row of the next batch after a number of batches."""
        return (batches + 1) % len(self.rows)

    def full(self, batches: int) -> bool:
        """Return whether every row has a value after a number of batches."""
        return batches >= len(self.rows)

    def with_newest(self, newest: Float[Tensor, "G D"], slot: int) -> Float[Tensor, "G K D"]:
        """Return one copy of the window per ghost batch, with its newest value at `slot`."""
        windows = self.rows.expand(len(newest), -1, -1).clone()
        windows[:, slot] = newest.to(windows)
        return windows

    def frozen(self) -> "Window":
        """Return a copy that later batches do not change."""
        return Window(self.rows.clone())
