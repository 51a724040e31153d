"""Measures the loss per target token on held-out examples, with and without a change."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from normlab.data.batching import eval_batches
from normlab.findings.finding import AnswerTable
from normlab.inspection.model.built_model import BuiltModel
from normlab.tasks.base import Batch, spread

BATCH_SIZE = 32
EXAMPLES = 64


def held_out_loss(built: BuiltModel) -> Callable[[], float]:
    """Return a function that computes the loss per target token on fixed held-out examples."""
    picked = spread(built.number("valid"), EXAMPLES)
    return partial(loss_per_token, built, by_length(built, picked, size=BATCH_SIZE))


def by_length(built: BuiltModel, indices: np.ndarray, *, size: int) -> list[Batch]:
    """Return held-out examples in batches of similar lengths, as in evaluation."""
    cut = eval_batches(built.task.lengths("valid")[indices], batch_size=size)
    return [built.batch("valid", indices[batch].tolist()) for batch in cut]


@torch.no_grad()
def loss_per_token(built: BuiltModel, batches: Iterable[Batch]) -> float:
    """Return the loss per target token over all batches. If a task has several losses, add them."""
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for batch in batches:
        for name, value in built.losses(batch).items():
            sums[name] += float(value)
            counts[name] += batch.counts[name]
    return sum(sums[name] / counts[name] for name in sums)


class ChangedLosses(NamedTuple):
    """The loss of a model, and its loss after each of several changes, keyed by the change."""

    plain: float
    changed: Mapping[str, float]

    @property
    def rises(self) -> dict[str, float]:
        """How much each change raises the loss."""
        return {name: loss - self.plain for name, loss in self.changed.items()}

    def values(self) -> dict[str, Any]:
        """Return the `values` of a finding."""
        return {"loss": self.plain, "rise": self.rises}

    def table(self, change: str) -> AnswerTable:
        """Return a table with one row per change. `change` is the title of its first column."""
        rows = [(name, loss, self.rises[name]) for name, loss in self.changed.items()]
        return AnswerTable((change, "loss", "rise"), rows)
