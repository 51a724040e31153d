"""The base classes of tasks (data, losses and scores) and of the micro-batches of a step.

The training loop draws batches, computes summed losses, and divides them by the batches' counts,
which are first summed over all micro-batches and ranks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from normlab.data.batching import Batches, Batching, eval_batches
from normlab.distributed.process_group import Shard, gather_objects
from normlab.errors import UserError
from normlab.models.base import Spec
from normlab.norms.running import EvalStats
from normlab.norms.tokens import Tokens
from normlab.records.record import Score
from normlab.stages import counted


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The tensors and counts of a micro-batch.

    Attributes:
        counts: the denominator of each summed loss, by loss name.
        tokens: number of real tokens that count towards a token budget (translation: target side).
        positions: number of positions in the batch, including padding.
        padding: number of padding positions.
    """

    counts: dict[str, int]
    tokens: int
    positions: int
    padding: int = 0

    def to(self, device: torch.device) -> Any:
        """Return the batch on a device, without waiting for it if the memory is pinned."""
        return self._with(
            lambda x: x.to(device) if isinstance(x, Tokens) else x.to(device, non_blocking=True)
        )

    def pinned(self) -> Any:
        """Return the batch in memory from which a GPU can copy it without waiting."""
        return self._with(lambda x: x.pinned() if isinstance(x, Tokens) else x.pin_memory())

    def _with(self, change: Callable[[Any], Any]) -> Any:
        """Return the batch with its tensors and tokens changed."""
        values = vars(self).items()
        changed = {n: change(x) for n, x in values if isinstance(x, Tensor | Tokens)}
        return replace(self, **changed)


class Draw(NamedTuple):
    """The seed and epoch that determine an epoch's random crops, segment pairs and masks.

    `limit` is the maximum number of tokens per example, or None for the task's setting.
    """

    seed: int
    epoch: int
    limit: int | None = None


@dataclass(kw_only=True, eq=False)
class Task(ABC):
    """Base class of tasks: data, batches, summed losses and scores.

    Attributes:
        batch_size, max_tokens, batching: how training batches are formed. One of the two sizes is
            None.
        eval_batch_size: examples per batch in validation and test.
        test_batch_sizes, test_eval_stats: settings under which to repeat the test. If
            `test_eval_stats` includes `batch`, each batch size is also tested with batch
            statistics.
        length_buckets: upper bounds of the length groups that get separate test scores. In
            translation, they are lengths of the source.
        targets: target values by validation score. Records have the steps to reach each of them.
        headline: the task's main score, if it is not the loss.
        padded: whether examples differ in length, so that batches have padding.
        sum_shapes: the keys that `score_sums` returns, each with its shape after the first
            dimension. With `length_buckets`, `tokens` must be one of them.
    """

    batch_size: int | None
    max_tokens: int | None
    batching: Batching = "random"
    eval_batch_size: int
    test_batch_sizes: Sequence[int] = ()
    test_eval_stats: Sequence[EvalStats] = ()
    length_buckets: Sequence[int] = ()
    targets: Mapping[str, Sequence[int | float]] = field(default_factory=dict)
    headline: ClassVar[str | None] = None
    padded: ClassVar[bool] = True
    sum_shapes: ClassVar[Mapping[str, tuple[int, ...]]]

    @property
    @abstractmethod
    def splits(self) -> Mapping[str, Any]:
        """The data of each split, by split name."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the record's data entry as JSON: source, sizes, checksums and padding share."""

    def checksums(self) -> Mapping[str, Any]:
        """Return the checksums of the data by split, and by part if a split has several."""
        return self.describe().get("checksums") or {}

    def vocabulary(self) -> dict[str, str]:
        """Return the text of the vocabulary files, which define the input and output ids, by name.

        A run saves them in its folder. Runs with different vocabularies cannot share embeddings.
        """
        return {}

    def restore(self, vocabulary: Mapping[str, str], description: Mapping[str, Any]) -> None:
        """Restore the task from a run's vocabulary and data description, without reading the data.

        The task can then translate or continue a user's text. Raises UserError if it can do
        neither.
        """
        raise UserError("this task generates no text; use normlab eval")

    @abstractmethod
    def spec(self) -> Spec:
        """Return the model's input and output sizes, which depend on the data."""

    @abstractmethod
    def lengths(self, split: str, draw: Draw | None = None) -> np.ndarray:
        """Return the length in tokens of each example in a split, per side, as int64 [n, k].

        If `draw` is given, these are the examples of a training epoch, otherwise the scored
        examples.
        """

    @abstractmethod
    def collate(
        self, split: str, indices: np.ndarray, draw: Draw | None = None, *, padding: float = 0.0
    ) -> Any:
        """Return a batch of the examples at the rows `indices` of `lengths`.

        For `padding`, see `batch`.
        """

    @abstractmethod
    def losses(self, model: Any, batch: Any) -> dict[str, Tensor]:
        """Return the sum of each loss by name. `batch.counts` has the denominator for its mean."""

    @abstractmethod
    def score_sums(self, model: Any, batch: Any) -> dict[str, Tensor]:
        """Return the sums per example, [B, ...], that `scores` needs, keyed as in `sum_shapes`.

        Without `length_buckets`, they may be sums over the whole batch, [1, ...].
        """

    @abstractmethod
    def scores(self, sums: Mapping[str, Any]) -> dict[str, Score]:
        """Return the scores by name, given the values of `score_sums` summed over all examples."""

    def baselines(self) -> dict[str, float]:
        """Return the untrained baseline of each score on the split `test`, by score name.

        For losses and accuracies, it is the score of predicting the frequencies of the test targets
        without any input. For BLEU and chrF, it is the score of copying the source.
        """
        return {}

    def stepwise(self, model: Any, batch: Any) -> tuple[Tensor, Tensor] | None:
        """Return the logits `[N, V]` at real targets, of whole sequences and of single steps.

        Both use the true previous tokens. Returns None for a task that does not generate. All
        examples must have the same length, because padding would be fed as if it were real tokens.
        """
        return None

    def train_batches(self, shard: Shard, seed: int) -> Batches:
        """Return one rank's training batches, in an order that depends only on `seed`."""
        return Batches(**self.plan(shard, seed, lambda epoch: Draw(seed, epoch)))

    def calibration_batches(self, shard: Shard, seed: int) -> Iterator[Batch]:
        """Return training batches with the final sequence length, for recalibration."""
        return self.train_batches(shard, seed)

    def plan(self, shard: Shard, seed: int, draw: Callable[[int], Draw]) -> dict[str, Any]:
        """Return the arguments of `Batches` with the epochs that `draw(epoch)` draws."""
        return {
            "lengths": lambda epoch: self.lengths("train", draw(epoch)),
            "collate": lambda indices, epoch: self.collate("train", indices, draw(epoch)),
            "batching": self.batching,
            "batch_size": self.batch_size,
            "max_tokens": self.max_tokens,
            "seed": seed,
            "shard": shard,
        }

    def planned(self, shard: Shard, seed: int) -> list[np.ndarray]:
        """Return the example lengths, int64 [n, k], of each micro-batch in a rank's first epoch."""
        lengths = self.lengths("train", Draw(seed, 0))
        return [lengths[indices] for indices in self.train_batches(shard, seed).indices]

    def padding_share(self) -> float:
        """Return the share of padding among the positions of an epoch's training batches."""
        lengths = self.planned(Shard(0, 1), 0)
        places = sum(int(x.max(axis=0).sum()) * len(x) for x in lengths)
        return 1 - sum(int(x.sum()) for x in lengths) / places

    def batch(self, split: str, indices: Sequence[int], *, padding: float = 0.0) -> Any:
        """Return a batch of examples to score, padded if necessary.

        At least a fraction `padding` (from 0 to below 1) of the positions of each side, such as
        source and target, is padding.
        """
        return self.collate(split, np.asarray(indices, np.int64), padding=padding)

    def longest_fed(self, max_positions: int) -> int:
        """Return the maximum number of positions that a run may feed, given the model's limit."""
        return max(int(self.lengths(split).max()) for split in self.splits)

    def fewest_pooled(self, lengths: np.ndarray) -> int:
        """Return the fewest tokens that a norm may pool in a batch with these lengths, [n, k]."""
        return int(lengths.sum(axis=0).min())

    def split(self, name: str) -> Any:
        """Return the data of a split, or raise UserError if the split does not exist."""
        if name not in self.splits:
            raise UserError(f"{name!r} is not a split; choose from {', '.join(self.splits)}")
        return self.splits[name]

    def dimmed(self, brightness: float) -> AbstractContextManager[None]:
        """Return a context that multiplies pixels by a factor.

        Raises UserError if the examples are not images.
        """
        raise UserError(
            f"observe.test_brightness=[{brightness:g}]: the examples of this task are not images; "
            "omit it"
        )

    def test_splits(self) -> list[str]:
        """Return the splits that are scored at the end of a run, `test` first."""
        return sorted(name for name in self.splits if name.startswith("test"))

    def score_names(self) -> Sequence[str]:
        """Return the names of the validation scores."""
        sums = {name: np.ones(shape).tolist() for name, shape in self.sum_shapes.items()}
        return list(self.scores(sums))

    @torch.no_grad()
    def evaluate(
        self,
        model: Any,
        split: str,
        shard: Shard,
        *,
        outputs: Path | None = None,
        batch_size: int | None = None,
        limit: int | None = None,
        each: Callable[[np.ndarray, Any], None] = lambda indices, batch: None,
    ) -> dict[str, Score]:
        """Score a split and return its scores, without the split in their names.

        Each rank scores its share, and all ranks return the same scores. Test splits are also
        scored per length group, such as `length_33_64/loss`. If text is generated, rank 0 writes it
        to `outputs`. `batch_size=None` uses the task's `eval_batch_size`. `limit` is the maximum
        number of examples, which are spread evenly over the split. `each` is called with the
        indices of the examples in every batch and with the batch.
        """
        lengths, device = self.lengths(split), next(model.parameters()).device
        chosen = spread(len(lengths), limit)
        bucket = np.searchsorted(self.length_buckets, lengths[:, 0])
        count = len(self.length_buckets) + 1
        sums = {name: np.zeros((count, *shape)) for name, shape in self.sum_shapes.items()}
        size = batch_size or self.eval_batch_size
        for part in counted(eval_batches(lengths[chosen], batch_size=size, shard=shard), len):
            indices = chosen[part]
            batch = self.collate(split, indices).to(device)
            for name, values in self.score_sums(model, batch).items():
                each_example = len(values) == len(indices)
                assert each_example or count == 1, f"{name}: length_buckets need sums per example"
                rows = bucket[indices][: len(values)]
                np.add.at(sums[name], rows, values.double().cpu().numpy())
            each(indices, batch)
        shares = gather_objects(sums)
        sums = {name: np.sum([share[name] for share in shares], axis=0) for name in sums}
        scores = self.scores({name: of.sum(axis=0).tolist() for name, of in sums.items()})
        if split.startswith("test") and batch_size is None and count > 1:
            bounds = [0, *self.length_buckets]
            names = [f"length_{low + 1}_{high}" for low, high in pairwise(bounds)]
            for number, name in enumerate([*names, f"length_over_{bounds[-1]}"]):
                group = {key: of[number].tolist() for key, of in sums.items()}
                group_scores = self.scores(group) if group["tokens"] else {}  # a group may be empty
                scores |= {f"{name}/{metric}": score for metric, score in group_scores.items()}
        return scores


def spread(total: int, limit: int | None) -> np.ndarray:
    """Return at most `limit` evenly spaced indices below `total`, or all if `limit` is None."""
    count = total if limit is None else min(limit, total)
    return np.linspace(0, total - 1, count).round().astype(np.int64)


def step_by_step(model: Any, ids: Int[Tensor, "B P"], state: Any) -> Float[Tensor, "B P V"]:
    """Feed tokens one position at a time, and return the logits after each token."""
    steps = [model.decode_step(column, state) for column in ids.unbind(1)]
    return torch.stack(steps, dim=1)
