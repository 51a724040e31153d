"""Training batches of documents, one after the other, and over a change of length."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from normlab.data.batching import BatchStream as IndexStream
from normlab.distributed import Shard

if TYPE_CHECKING:
    from normlab.tasks.documents import DocumentTask


@dataclass(frozen=True)
class LengthChange:
    """From which step on examples have another `max_length` (both None: they never do).

    In place of `step`, `after` is the share of `steps` after which they have: BERT's is 0.9.
    """

    step: int | None
    max_length: int | None
    after: float | None = None
    steps: int | None = None

    def __post_init__(self):
        if self.after is not None:
            if self.step is not None or self.steps is None or not 0 < self.after < 1:
                raise ValueError(
                    f"task.length_change.after={self.after} must be above 0 and below 1, with "
                    f"task.length_change.steps={self.steps} a number (budget.steps) and "
                    f"task.length_change.step={self.step} null"
                )
            object.__setattr__(self, "step", int(self.after * self.steps + 1e-9) + 1)
        if (self.step is None) != (self.max_length is None):
            raise ValueError(
                f"task.length_change.step={self.step} and task.length_change.max_length="
                f"{self.max_length}: set both or neither"
            )
        if self.step is not None and self.step < 1:
            raise ValueError(f"task.length_change.step={self.step} must be above 0")


class DocumentStream(Iterator[Any]):
    """Training batches of documents; from some batch on, those of another `max_length`.

    Epochs keep counting when the length changes, so that no masks come twice.
    """

    def __init__(
        self, task: "DocumentTask", shard: Shard, seed: int, *, limit: int, later: LengthChange
    ):
        self._task, self._shard, self._seed = task, shard, seed
        self._change_at = None if later.step is None else (later.step - 1) * task.accumulate
        self._later = later.max_length
        self._drawn = 0
        self._limit = limit
        self._indices = self._plan(epoch=0)

    def _plan(self, epoch: int) -> IndexStream:
        limit = self._limit
        indices = self._task.index_stream(self._shard, seed=self._seed, limit=limit)
        indices.load_state_dict({"epoch": epoch, "index": 0})
        return indices

    @property
    def epochs(self) -> float:
        """Return the number of epochs drawn, a begun one by its share."""
        place = self._indices.state_dict()
        return place["epoch"] + place["index"] / self._indices.batches_per_epoch

    def __next__(self) -> Any:
        if self._drawn == self._change_at:
            place = self._indices.state_dict()
            self._change(epoch=place["epoch"] + (place["index"] > 0))
        epoch = self._indices.epoch
        indices = next(self._indices)
        self._drawn += 1
        return self._task.collate("train", indices, limit=self._limit, seed=self._seed, epoch=epoch)

    def _change(self, *, epoch: int) -> None:
        assert self._later is not None
        self._limit = self._later
        self._indices = self._plan(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the stream."""
        return {"drawn": self._drawn, **self._indices.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place."""
        self._drawn = state["drawn"]
        if self._change_at is not None and self._drawn > self._change_at:
            self._change(epoch=state["epoch"])
        self._indices.load_state_dict({"epoch": state["epoch"], "index": state["index"]})
