"""Collates batches in advance, while the device computes earlier steps."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from normlab.data.batching import Batches


class BatchesAhead(Iterator[Any]):
    """An iterator over `batches` whose thread collates the next `ahead` of them (0: no thread).

    A batch counts in `epochs` and in the saved state once this iterator has returned it. An error
    in collating a batch is raised when that batch would be returned. For a GPU, batches are in
    pinned memory, so that copying them does not block.
    """

    def __init__(self, batches: Batches, *, ahead: int, device: torch.device) -> None:
        self._batches, self.ahead, self._device = batches, ahead, device
        self._thread: ThreadPoolExecutor | None = None
        self._coming: deque[Future[tuple[Any, float, dict[str, Any]]]] = deque()
        self._epochs, self._state = batches.epochs, batches.state_dict()

    @property
    def epochs(self) -> float:
        """The number of epochs taken so far, including the fraction of the current epoch."""
        return self._epochs

    def __next__(self) -> Any:
        if self.ahead == 0:
            batch, self._epochs, self._state = self._collated()
            return batch
        if self._thread is None:
            if self._batches.state_dict() != self._state:  # drawn before `close`
                self._batches.load_state_dict(self._state)
            self._thread = ThreadPoolExecutor(1, "batches", self._use_device)
        while len(self._coming) <= self.ahead:
            self._coming.append(self._thread.submit(self._collated))
        batch, self._epochs, self._state = self._coming.popleft().result()
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch taken."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position from `state_dict`, or raise UserError if the epoch is too short."""
        self._forget()
        self._batches.load_state_dict(state)
        self._epochs, self._state = self._batches.epochs, self._batches.state_dict()

    def close(self) -> None:
        """End the thread. The next call of `next` restarts it after the last batch taken."""
        self._forget()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _forget(self) -> None:
        """Drop the batches that have not been taken, and wait until the thread is idle."""
        for future in self._coming:
            if not future.cancel():
                future.exception()  # waits until it is done
        self._coming.clear()

    def _use_device(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)

    def _collated(self) -> tuple[Any, float, dict[str, Any]]:
        """Return the next batch, and the epochs and the state after it."""
        batch = next(self._batches)
        if self._device.type == "cuda" and self.ahead:
            batch = batch.pinned()
        return batch, self._batches.epochs, self._batches.state_dict()
