"""Plans the batches of an epoch: the examples in each batch, and the order of the batches.

The plan depends only on (lengths, settings, seed, epoch), not on the model, its norms, the device
or the number of processes. Models with different norms that are trained with the same seed
therefore see the same batches, and so does a resumed run. A thread can collate batches in advance,
while a GPU computes earlier steps.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from normlab.distributed.process_group import Shard
from normlab.errors import UserError

Batching = Literal["bucket", "random"]

ALONE = Shard(0, 1)


def plan_batches(
    lengths: np.ndarray,
    *,
    batching: Batching,
    batch_size: int | None,
    max_tokens: int | None,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Split an epoch's sentences, given their `lengths` [n, sides], into batches of indices.

    `bucket` sorts a random permutation by (target, source) length, cuts it into batches and
    shuffles the batches, which leaves little padding. `random` does not sort, so there is much
    padding. A batch has `batch_size` sentences or, if that is None, as many as fit: the number of
    sentences times the longest side is at most `max_tokens`. Raises UserError if a sentence is
    longer than `max_tokens`.
    """
    order = rng.permutation(len(lengths))
    if batching == "random":
        return _cut(lengths, order, batch_size, max_tokens)
    # lexsort's last key is the primary one. The sort is stable: equal lengths keep a random order.
    order = order[np.lexsort(lengths[order].T)]
    batches = _cut(lengths, order, batch_size, max_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def eval_batches(lengths: np.ndarray, *, batch_size: int, shard: Shard = ALONE) -> list[np.ndarray]:
    """Batch all sentences, longest source first, and return this rank's batches.

    The longest sentences come first, so that a batch too large for memory fails at once. The number
    of batches differs by at most one between ranks.
    """
    order = np.lexsort((lengths[:, -1], lengths[:, 0]))[::-1]
    return _cut(lengths, order, batch_size, None)[shard.rank :: shard.size]


class Batches(Iterator[Any]):
    """An endless, exactly resumable iterator over batches for one of `shard.size` processes.

    `lengths` [n, sides] is an array or a function of the epoch. The iterator yields
    `collate(indices, epoch)`, by default just the indices. All processes plan the same epoch, and
    each takes every `shard.size`-th batch, starting at its rank. Leftover batches are dropped, so
    that all processes draw the same number. The state is the same on all ranks.

    Attributes:
        indices: the example indices of each batch that this process draws in the current epoch.
    """

    def __init__(
        self,
        lengths: np.ndarray | Callable[[int], np.ndarray],
        *,
        batching: Batching,
        batch_size: int | None,
        max_tokens: int | None,
        seed: int,
        shard: Shard = ALONE,
        collate: Callable[[np.ndarray, int], Any] = lambda indices, epoch: indices,
    ) -> None:
        self._lengths = lengths if callable(lengths) else lambda _: lengths
        self._plan = partial(
            plan_batches, batching=batching, batch_size=batch_size, max_tokens=max_tokens
        )
        self._seed, self._shard, self._collate = seed, shard, collate
        self._go_to(0, 0)

    @property
    def epochs(self) -> float:
        """The number of epochs drawn so far, including the fraction of the current epoch."""
        return self._epoch + self._index / len(self.indices)

    def __next__(self) -> Any:
        indices, epoch = self.indices[self._index], self._epoch
        self._index += 1
        if self._index == len(self.indices):
            self._go_to(epoch + 1, 0)
        return self._collate(indices, epoch)

    def state_dict(self) -> dict[str, int]:
        """Return the number of completed epochs, and of batches drawn in the current epoch."""
        return {"epoch": self._epoch, "index": self._index}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore a position from `state_dict`, or raise UserError if the epoch is too short."""
        self._go_to(state["epoch"], state["index"])
        if not 0 <= self._index < len(self.indices):
            raise UserError(
                f"cannot resume at batch {self._index} of {len(self.indices)}: the data, the "
                "batch size or the number of processes has changed since the checkpoint"
            )

    def _go_to(self, epoch: int, index: int) -> None:
        self._epoch, self._index = epoch, index
        rng = np.random.Generator(np.random.PCG64([self._seed, epoch]))
        batches = self._plan(self._lengths(epoch), rng=rng)
        rounds = len(batches) // self._shard.size
        if rounds == 0:
            raise UserError(
                f"an epoch has only {len(batches)} batches for {self._shard.size} processes; "
                "lower batch_size or max_tokens, or start fewer processes"
            )
        self.indices = batches[self._shard.rank : rounds * self._shard.size : self._shard.size]


def _cut(
    lengths: np.ndarray, order: np.ndarray, batch_size: int | None, max_tokens: int | None
) -> list[np.ndarray]:
    """Cut `order` into batches limited by `batch_size` or, if that is None, by `max_tokens`."""
    if batch_size is not None:
        return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    assert max_tokens is not None, "batch_size or max_tokens is set"
    longest = lengths.max(axis=1)
    if longest.max(initial=0) > max_tokens:
        raise UserError(
            f"sentence {longest.argmax() + 1} has {longest.max()} tokens, more than "
            f"max_tokens={max_tokens}; raise max_tokens, or lower task.max_length"
        )
    cuts: list[int] = []
    start = width = 0
    for place, length in enumerate(longest[order].tolist()):
        width = max(width, length)
        if (place - start + 1) * width > max_tokens:
            cuts.append(place)
            start, width = place, length
    return np.split(order, cuts)


class BatchesAhead(Iterator[Any]):
    """An iterator over `batches` that collates the next `ahead` batches in a thread.

    If `ahead` is 0, there is no thread. A batch counts in `epochs` and in the saved state once this
    iterator has returned it. An error in collating a batch is raised when that batch would be
    returned. If the device is a GPU, batches collated ahead are in pinned memory, so that copying
    them does not block.
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
            if self._batches.state_dict() != self._state:  # some were drawn ahead before `close`
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
        """End the thread. The next call of `next` restarts it and returns the next batch."""
        self._forget()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _forget(self) -> None:
        """Drop the batches that have not been taken, and wait until the thread is idle."""
        for future in self._coming:
            if not future.cancel():
                future.exception()  # waits until the thread is idle
        self._coming.clear()

    def _use_device(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)

    def _collated(self) -> tuple[Any, float, dict[str, Any]]:
        """Collate the next batch, and return it with the `epochs` and the state after it."""
        batch = next(self._batches)
        if self._device.type == "cuda" and self.ahead:
            batch = batch.pinned()
        return batch, self._batches.epochs, self._batches.state_dict()
