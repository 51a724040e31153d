"""What masked and causal language modelling share: documents, their examples and batches.

A task of this kind says what an example is (`examples`) and what a model gets right of each
(`tally`). Sums by example make every score, of a whole split and of its length buckets.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from normlab.data.batching import EVAL_SEED, Batching, padding_share
from normlab.data.batching import BatchStream as IndexStream
from normlab.data.documents import DocumentCorpus
from normlab.data.prepare import PreparedDocuments, prepare_documents
from normlab.data.vocabulary import DocumentTokenizer, Pieces
from normlab.distributed import Shard
from normlab.models.base import Longest, Text
from normlab.norms.base import EvalStats
from normlab.tasks.base import Batch, BatchStream, Task, conditions_of


@runtime_checkable
class Examples(Protocol):
    """The examples of a split in one epoch."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each, int64 [examples]."""
        ...

    def describe(self) -> dict[str, int]:
        """Return counts for the record."""
        ...


@dataclass(frozen=True, kw_only=True)
class TextBatch(Batch):
    """What batches of one stream of text have in common."""

    ids: Tensor
    valid: Tensor


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


class DocumentStream(BatchStream):
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
        self._plan(limit, epoch=0)

    def _plan(self, limit: int | None, *, epoch: int) -> None:
        assert limit is not None
        indices = self._task.index_stream(self._shard, seed=self._seed, limit=limit)
        indices.load_state_dict({"epoch": epoch, "index": 0})
        collate = partial(self._task.collate, "train", limit=limit, seed=self._seed)
        self._indices, self._collate = indices, lambda chosen, epoch: collate(chosen, epoch=epoch)

    def __next__(self) -> Any:
        if self._drawn == self._change_at:
            place = self._indices.state_dict()
            self._plan(self._later, epoch=place["epoch"] + (place["index"] > 0))
        self._drawn += 1
        return super().__next__()

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self._drawn, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._drawn = state["drawn"]
        if self._change_at is not None and self._drawn > self._change_at:
            self._plan(self._later, epoch=state["epoch"])
        super().load_state_dict({"epoch": state["epoch"], "index": state["index"]})


@dataclass(kw_only=True, eq=False)
class DocumentTask(Task):
    """A language model of documents.

    Attributes:
        corpus: where the documents come from.
        vocab_size, pieces, lowercase: see `DocumentTokenizer.train`.
        max_length: tokens of an example in training, with its marks.
        eval_max_length: of an example in validation and test; None is the longest of training.
        length_change: from when on training has another `max_length`.
        batch_size, max_tokens, batching: how examples share batches; exactly one size is set.
        accumulate: micro-batches a step, which `length_change` counts in.
        eval_batch_size: examples a batch in validation and test.
        test_batch_sizes, test_eval_stats: under what else the test is scored, the sizes also with
            the statistics of the batch.
        length_buckets, targets: see `Task`.
    """

    corpus: DocumentCorpus
    vocab_size: int
    pieces: Pieces
    lowercase: bool
    max_length: int
    eval_max_length: int | None
    length_change: LengthChange
    batch_size: int | None
    max_tokens: int | None
    batching: Batching
    accumulate: int
    eval_batch_size: int
    test_batch_sizes: Sequence[int]
    test_eval_stats: Sequence[EvalStats]
    length_buckets: Sequence[int]
    targets: Mapping[str, Sequence[int | float]] = field()  # not the empty default of `Task`

    def __post_init__(self):
        if list(self.length_buckets) != sorted(set(self.length_buckets)):
            raise ValueError(f"task.length_buckets={self.length_buckets} must ascend")
        self.longest = max(self.max_length, self.length_change.max_length or 0)
        self.eval_limit = self.eval_max_length or self.longest
        self.conditions = conditions_of(self.test_batch_sizes, self.test_eval_stats)
        self._examples = lru_cache(maxsize=4)(self.examples)

    @abstractmethod
    def examples(self, split: str, *, limit: int, seed: int, epoch: int) -> Examples:
        """Return the examples of an epoch, none longer than `limit` tokens."""

    @abstractmethod
    def collate(
        self,
        split: str,
        indices: np.ndarray,
        *,
        limit: int,
        seed: int,
        epoch: int,
        padding: float = 0.0,
    ) -> Any:
        """Return a batch of examples; an example is the same in every batch."""

    @abstractmethod
    def blind_sums(self, split: str) -> dict[str, float]:
        """Return what `tally` gives, over a split, whoever knows the frequencies of its targets."""

    @cached_property
    def data(self) -> PreparedDocuments:
        """Return the tokenized corpus, prepared on first use."""
        return prepare_documents(
            self.corpus,
            vocab_size=self.vocab_size,
            pieces=self.pieces,
            lowercase=self.lowercase,
            max_length=self.max_length,
        )

    def describe(self) -> dict[str, Any]:
        """Return the data's description: the text, the examples of an epoch, and their padding."""
        indices = self.index_stream(Shard(0, 1), seed=0, limit=self.max_length)
        batches = [next(indices) for _ in range(indices.batches_per_epoch)]
        first = self._examples("train", limit=self.max_length, seed=0, epoch=0)
        held_out = [split for split in self.data.splits if split != "train"]
        return {
            **self.data.description,
            "examples": {
                "train": first.describe(),
                **{split: self.evaluated(split).describe() for split in held_out},
            },
            "padding_share": padding_share(first.lengths[:, None], batches),
        }

    def samples(self, count: int) -> list[str]:
        """Return the first training examples as a model is given them, marks and all."""
        batch = self.batch("train", range(count))
        rows = zip(batch.ids.tolist(), batch.valid.tolist(), strict=True)
        real = ([token for token, valid in zip(*row, strict=True) if valid] for row in rows)
        return [" ".join(self.data.tokenizer.tokens(ids)) for ids in real]

    def evaluated(self, split: str) -> Examples:
        """Return the examples that a split is scored on: the same in every run."""
        self.split(split)
        return self._examples(split, limit=self.eval_limit, seed=EVAL_SEED, epoch=0)

    def text_spec(self, *, causal: bool) -> Text:
        """Return what a model of one stream is built from."""
        return Text(
            vocab=len(self.data.tokenizer),
            pad_id=DocumentTokenizer.pad_id,
            longest=Longest(
                max(self.longest, self.eval_limit),
                "examples have up to",
                "raise it (learned positions beyond the longest training length stay as they were "
                "drawn), or lower task.max_length or task.eval_max_length",
            ),
            causal=causal,
        )

    def reach(self, room: int) -> int:
        """Return the most tokens that an example may have."""
        return max(self.longest, self.eval_limit)

    def planned(self, shard: Shard, seed: int) -> list[np.ndarray]:
        """Return the lengths, int64 [n, 1], of each micro-batch of a rank's first text."""
        lengths = self._examples("train", limit=self.max_length, seed=seed, epoch=0).lengths
        indices = self.index_stream(shard, seed=seed, limit=self.max_length)
        return [lengths[next(indices), None] for _ in range(indices.batches_per_epoch)]

    def train_batches(self, shard: Shard, seed: int) -> DocumentStream:
        """Return the endless training batches of one rank."""
        return DocumentStream(self, shard, seed, limit=self.max_length, later=self.length_change)

    def calibration_batches(self, shard: Shard, seed: int) -> DocumentStream:
        """Return training batches of the length that training ends with."""
        limit = self.length_change.max_length or self.max_length
        return DocumentStream(self, shard, seed, limit=limit, later=LengthChange(None, None))

    def index_stream(self, shard: Shard, *, seed: int, limit: int) -> IndexStream:
        """Return which examples share a batch, for examples of at most `limit` tokens."""

        def lengths(epoch: int) -> np.ndarray:
            return self._examples("train", limit=limit, seed=seed, epoch=epoch).lengths[:, None]

        return IndexStream(
            lengths,
            batching=self.batching,
            batch_size=self.batch_size,
            max_tokens=self.max_tokens,
            seed=seed,
            shard=shard,
        )

    def lengths(self, split: str) -> np.ndarray:
        """Return the tokens of each example that the split is scored on, [n, 1]."""
        return self.evaluated(split).lengths[:, None]

    def batch(self, split: str, indices: Sequence[int], *, padding: float = 0.0) -> Any:
        """Return a batch of chosen examples of those the split is scored on."""
        if not 0 <= padding < 1:
            raise ValueError(f"padding={padding}: a share from 0 to below 1")
        self.evaluated(split)
        return self.collate(
            split,
            np.asarray(indices, dtype=np.int64),
            limit=self.eval_limit,
            seed=EVAL_SEED,
            epoch=0,
            padding=padding,
        )

    def floors(self) -> dict[str, float]:
        """Return the scores of the test by the frequencies of its own targets alone."""
        return {name: score.value for name, score in self.scores(self.blind_sums("test")).items()}

    @property
    def splits(self) -> Mapping[str, Any]:
        return self.data.splits


def padded_width(tokens: int, rows: int, width: int, padding: float) -> int:
    """Return the width at which `rows` rows with `tokens` real tokens have `padding` of it."""
    return max(width, int(np.ceil(tokens / (rows * (1 - padding)) - 1e-9)))
