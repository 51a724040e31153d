"""The contract of a task, with what all tasks share: streams, scored splits, sums over ranks.

The loop never sees a token or a label. It draws batches, asks for summed losses and divides them by
the batches' counts, which it has added up over all micro-batches and ranks first.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from normlab.data.batching import Batching, BatchStream, eval_batches
from normlab.models.base import Spec
from normlab.models.layers import noisy
from normlab.norms.base import EvalStats, normalized_by, running_norms
from normlab.norms.ranks import Shard, sum_scalars
from normlab.norms.recalibration import recalibrated
from normlab.records.record import Score
from normlab.tasks.progress import counted


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One micro-batch: tensors, and what is counted of them.

    Attributes:
        counts: the denominator of each summed loss, by the loss's name.
        tokens: real tokens that a budget in tokens counts (the target side in translation).
        positions: all positions of the batch, padding included.
        padding: the positions that are padding.
    """

    counts: dict[str, int]
    tokens: int
    positions: int
    padding: int = 0

    def to(self, device: torch.device) -> Any:
        """Return the batch on a device."""
        moved = {
            name: value.to(device, non_blocking=True)
            for name, value in vars(self).items()
            if torch.is_tensor(value)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class Condition:
    """What is different when a test is repeated; None leaves the run's own setting."""

    eval_stats: EvalStats | None = None
    batch_size: int | None = None
    noise: float | None = None
    """Standard deviation of noise on the input (see `noisy`)."""

    @property
    def name(self) -> str:
        """The part of a score's path that names it, such as `eval_stats_batch/batch_size_1`."""
        values = {
            "eval_stats": self.eval_stats,
            "batch_size": self.batch_size,
            "noise": None if self.noise is None else f"{self.noise:g}",
        }
        named = [f"{name}_{value}" for name, value in values.items() if value is not None]
        return "/".join(named)

    def applied(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return a context in which the model's norms do what the condition says."""
        return nullcontext() if self.eval_stats is None else normalized_by(model, self.eval_stats)

    def disturbed(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return a context in which the model's input has the condition's noise."""
        return nullcontext() if self.noise is None else noisy(model, self.noise)

    def matters(self, model: nn.Module) -> bool:
        """Tell whether the condition may change what comes of the model."""
        return self.eval_stats is None or bool(running_norms(model))


def conditions_of(sizes: Sequence[int], statistics: Sequence[EvalStats]) -> list[Condition]:
    """Return batch sizes, statistics, and the sizes with the statistics of the batch if asked."""
    by_size = [Condition(batch_size=size) for size in sizes]
    both = [replace(each, eval_stats="batch") for each in by_size if "batch" in statistics]
    return [*by_size, *(Condition(eval_stats=each) for each in statistics), *both]


class Task(ABC):
    """Data, batches, summed losses and scores.

    Attributes:
        batch_size, max_tokens, batching: how training examples share batches; exactly one size.
        eval_batch_size: examples per batch in validation and test.
        conditions: under what the test is repeated, in addition to the run's own settings.
        headline: the score the task is judged by, where that is another than the loss.
        padded: whether examples differ in length, so that batches have padding.
        length_buckets: upper bounds of the length groups that get test scores of their own.
        targets: values of validation scores; a record says after how many steps each was reached.
    """

    batch_size: int | None
    max_tokens: int | None
    batching: Batching
    eval_batch_size: int
    conditions: Sequence[Condition] = ()
    headline: str | None = None
    padded: bool = True
    length_buckets: Sequence[int] = ()
    targets: Mapping[str, Sequence[float]] = {}

    @property
    @abstractmethod
    def splits(self) -> Mapping[str, Any]:
        """The data of each split by its name."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what the record says of the data: source, sizes, checksums, padding share."""

    @abstractmethod
    def spec(self) -> Spec:
        """Return what goes into a model and what comes out; the data are read for it."""

    @abstractmethod
    def lengths(self, split: str) -> np.ndarray:
        """Return the tokens of each example of a split, in each of its streams: int64 [n, k]."""

    def training_lengths(self, seed: int, epoch: int) -> np.ndarray:
        """Return the lengths, as `lengths` does, of the training examples of an epoch."""
        return self.lengths("train")

    @abstractmethod
    def training_batch(self, indices: np.ndarray, epoch: int, *, seed: int) -> Any:
        """Return a batch of training examples as an epoch has them."""

    @abstractmethod
    def evaluation_batch(self, split: str, indices: np.ndarray, *, padding: float) -> Any:
        """Return a batch of the examples that a split is scored on (see `batch`)."""

    @abstractmethod
    def losses(self, model: Any, batch: Any) -> dict[str, Tensor]:
        """Return SUMS of the losses; the denominators are `batch.counts` of the same names."""

    @property
    @abstractmethod
    def tallied(self) -> Mapping[str, tuple[int, ...]]:
        """The names that `tally` returns with the shape of each after the first dimension."""

    @abstractmethod
    def tally(self, model: Any, batch: Any) -> dict[str, Tensor]:
        """Return sums of each example, [B, ...]; [1, ...] is enough without `length_buckets`."""

    @abstractmethod
    def scores(self, sums: Mapping[str, Any]) -> dict[str, Score]:
        """Return scores from the sums of `tally` over examples."""

    def floors(self) -> dict[str, float]:
        """Return the untrained baseline of scores of the split `test`, names without split.

        Of a loss or an accuracy: what the frequencies of the test's own targets give without any
        input. Of translation: what copying the source gives.
        """
        return {}

    def stepwise(self, model: Any, batch: Any) -> tuple[Tensor, Tensor] | None:
        """Return logits `[N, V]` of the real targets, from whole sequences and token by token.

        Both are given the true tokens so far; None for a task that does not generate. Examples of
        one length, or one at a time: what ends earlier is fed padding, as real tokens.
        """
        return None

    def assemble_on(self, device: torch.device) -> None:
        """Let training batches be assembled on a device, where a task can."""
        return

    def train_batches(self, shard: Shard, seed: int) -> BatchStream:
        """Return the training batches of one rank, in an order that `seed` alone decides."""
        return self.indices(shard, seed, collate=partial(self.training_batch, seed=seed))

    def calibration_batches(self, shard: Shard, seed: int) -> Iterator[Batch]:
        """Return training batches, as the last ones are, to estimate statistics on."""
        return self.train_batches(shard, seed)

    def indices(self, shard: Shard, seed: int, *, collate: Any = None) -> BatchStream:
        """Return which training examples share a batch (see `BatchStream`)."""
        return BatchStream(
            partial(self.training_lengths, seed),
            batching=self.batching,
            batch_size=self.batch_size,
            max_tokens=self.max_tokens,
            seed=seed,
            shard=shard,
            collate=collate,
        )

    def planned(self, shard: Shard, seed: int) -> list[np.ndarray]:
        """Return the lengths, int64 [n, k], of each micro-batch of the first epoch of a rank."""
        lengths, stream = self.training_lengths(seed, 0), self.indices(shard, seed)
        return [lengths[next(stream)] for _ in range(stream.batches_per_epoch)]

    def padding_share(self) -> float:
        """Return the share of padding in the training batches of an epoch."""
        lengths = self.planned(Shard(0, 1), 0)
        places = sum(int(x.max(axis=0).sum()) * len(x) for x in lengths)
        return 1 - sum(int(x.sum()) for x in lengths) / places

    def batch(self, split: str, indices: Sequence[int], *, padding: float = 0.0) -> Any:
        """Return a batch of chosen examples, padded until each stream is `padding` padding.

        `padding` is a share from 0 to below 1; streams that have more of it are left as they are.
        """
        if not 0 <= padding < 1:
            raise ValueError(f"padding={padding}: a share from 0 to below 1")
        self.split(split)
        return self.evaluation_batch(split, np.asarray(indices, np.int64), padding=padding)

    def reach(self, room: int) -> int:
        """Return the positions of the longest sequence that a run may feed a model of `room`."""
        splits = ("train", "valid", *self.test_splits())
        return max(int(self.lengths(split).max()) for split in splits)

    def fewest_pooled(self, lengths: np.ndarray) -> int:
        """Return the fewest tokens that a norm may be given of a batch of these lengths [n, k]."""
        return int(lengths.sum(axis=0).min())

    @contextmanager
    def some(self, split: str, count: int) -> Iterator[int]:
        """Within the block about `count` examples of a split are scored: every n-th batch.

        Yields n; a task that reduces its data itself yields 1.
        """
        yield max(1, len(self.lengths(split)) // count)

    def split(self, name: str) -> Any:
        """Return a split; ValueError where there is no such one."""
        if name not in self.splits:
            raise ValueError(f"no split {name!r}: the corpus has {', '.join(self.splits)}")
        return self.splits[name]

    def test_splits(self) -> list[str]:
        """Return the names of the splits that the end of a run scores, `test` first."""
        names = [name for name in self.splits if name.startswith("test")]
        return sorted(names, key=lambda name: (name != "test", name))

    def score_names(self) -> Sequence[str]:
        """Return the names of a validation's scores."""
        return list(
            self.scores({name: np.ones(shape).tolist() for name, shape in self.tallied.items()})
        )

    def evaluate(
        self,
        model: Any,
        split: str,
        shard: Shard,
        *,
        outputs: Path | None = None,
        batch_size: int | None = None,
    ) -> dict[str, Score]:
        """Score a split (each rank its share); equal scores on all ranks, names without split.

        The model's outputs, if it makes text, are written to the file `outputs` by rank 0.
        `batch_size` examples share a batch; None is the task's own.
        """
        return self.tally_scores(model, split, shard, batch_size=batch_size)

    @torch.no_grad()
    def tally_scores(
        self,
        model: Any,
        split: str,
        shard: Shard,
        *,
        batch_size: int | None,
        each: Callable[[np.ndarray, Any], None] = lambda indices, batch: None,
    ) -> dict[str, Score]:
        """Score a split by its sums, a test by the length of its examples too, `length_33_64/loss`.

        `each` is called with the indices of each batch and the batch.
        """
        lengths, device = self.lengths(split), next(model.parameters()).device
        bucket = np.searchsorted(self.length_buckets, lengths[:, 0])
        count = len(self.length_buckets) + 1
        sums = {name: np.zeros((count, *shape)) for name, shape in self.tallied.items()}
        size = batch_size or self.eval_batch_size
        for indices in counted(eval_batches(lengths, batch_size=size, shard=shard), len):
            batch = self.batch(split, indices.tolist()).to(device)
            for name, values in self.tally(model, batch).items():
                rows = bucket[indices][: len(values)]
                np.add.at(sums[name], rows, values.double().cpu().numpy())
            each(indices, batch)
        flat = sum_scalars(np.concatenate([of.ravel() for of in sums.values()]).tolist())
        ends = np.cumsum([of.size for of in sums.values()])[:-1]
        for name, part in zip(sums, np.split(np.asarray(flat), ends), strict=True):
            sums[name] = part.reshape(sums[name].shape)
        scores = self.scores({name: of.sum(axis=0).tolist() for name, of in sums.items()})
        if split.startswith("test") and batch_size is None and count > 1:
            bounds = [0, *self.length_buckets]
            names = [f"length_{low + 1}_{high}" for low, high in pairwise(bounds)]
            for number, name in enumerate([*names, f"length_over_{bounds[-1]}"]):
                part = {key: of[number].tolist() for key, of in sums.items()}
                if part["tokens"]:  # examples of unknown words alone predict none
                    found = self.scores(part)
                    scores |= {f"{name}/{figure}": score for figure, score in found.items()}
        return scores

    def recalibrated(
        self, model: nn.Module, batches: Iterable[Any], *, force: bool = False
    ) -> AbstractContextManager[Any]:
        """Return a context in which running statistics are re-estimated on training batches.

        Nothing happens unless a norm evaluates with `eval_stats: recalibrated`, or `force` asks for
        it because the statistics do not belong to the weights (averaged weights).
        """
        kinds = {norm.eval_stats for norm in running_norms(model)}
        if not kinds & ({"recalibrated", "running"} if force else {"recalibrated"}):
            return nullcontext()

        @torch.no_grad()
        def run() -> None:
            device = next(model.parameters()).device
            for batch in batches:
                self.losses(model, batch.to(device))

        return recalibrated(model, run)
