"""The common base of masked and causal language modelling on documents.

A subclass defines what an example is (`examples`), how to make a batch of examples (`collate`)
and what the model predicts right in each (`tally`).
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from normlab.data.batching import EVAL_SEED, Batching, BatchStream
from normlab.data.documents import DocumentCorpus
from normlab.data.prepare import PreparedDocuments, prepare_documents
from normlab.data.vocabulary import DocumentTokenizer, Pieces
from normlab.models.base import Longest, Text
from normlab.norms.base import EvalStats
from normlab.norms.ranks import Shard
from normlab.tasks.base import Batch, Task, conditions_of


class Pass(NamedTuple):
    """One pass over a split: the most tokens per example, and the seed and epoch of its draws."""

    split: str
    limit: int
    seed: int
    epoch: int


@dataclass(frozen=True, kw_only=True)
class TextBatch(Batch):
    """The common fields of batches with one stream of text."""

    ids: Int[Tensor, "B P"]
    valid: Bool[Tensor, "B P"]


@dataclass(frozen=True)
class LengthChange:
    """The step from which examples have another `max_length` (both None: it never changes).

    Instead of `step`, `after` gives the share of `steps` before the change: 0.9 in BERT.
    """

    step: int | None
    max_length: int | None
    after: float | None = None
    steps: int | None = None

    def __post_init__(self):
        if self.after is not None and self.steps is not None and self.step is None:
            object.__setattr__(self, "step", int(self.after * self.steps + 1e-9) + 1)
        if (self.step is None) != (self.max_length is None):
            raise ValueError(
                f"task.length_change.step={self.step} and task.length_change.max_length="
                f"{self.max_length}: set both or neither (after, in place of step, needs "
                "budget.steps)"
            )


NEVER = LengthChange(None, None)


class DocumentStream(BatchStream):
    """Training batches of documents, which may change to another `max_length` on the way.

    Epochs keep counting when the length changes, so that no masks repeat.
    """

    def __init__(
        self, task: "DocumentTask", shard: Shard, seed: int, *, limit: int, later: LengthChange
    ):
        self._limit, self._later, self._drawn = limit, later.max_length, 0
        self._change_at = math.inf if later.step is None else (later.step - 1) * task.accumulate

        def now(epoch: int) -> Pass:
            changed = self._drawn > self._change_at and self._later
            return Pass("train", changed or self._limit, seed, epoch)

        super().__init__(
            lambda epoch: task.drawn(now(epoch)).lengths[:, None],
            batching=task.batching,
            batch_size=task.batch_size,
            max_tokens=task.max_tokens,
            seed=seed,
            shard=shard,
            collate=lambda indices, epoch: task.collate(now(epoch), indices),
        )

    def __next__(self) -> Any:
        self._drawn += 1
        if self._drawn == self._change_at + 1:
            self._go_to(self._epoch + (self._index > 0), 0)
        return super().__next__()

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self._drawn, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._drawn = state["drawn"]
        super().load_state_dict(state)


@dataclass(kw_only=True, eq=False)
class DocumentTask(Task):
    """A language model of documents.

    Attributes:
        corpus: where the documents come from.
        vocab_size, pieces, lowercase: see `DocumentTokenizer.train`.
        max_length: tokens per training example, including special tokens.
        eval_max_length: the same for validation and test; None is the longest used in training.
        length_change: when to switch training to another `max_length`.
        accumulate: micro-batches per step, to convert the step of `length_change` into batches.
        test_batch_sizes, test_eval_stats: further settings to score the test with. If
            `test_eval_stats` has batch statistics, every batch size is also scored with them.
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
    causal: ClassVar[bool]

    def __post_init__(self):
        if list(self.length_buckets) != sorted(set(self.length_buckets)):
            raise ValueError(f"task.length_buckets={self.length_buckets} must ascend")
        self.longest = max(self.max_length, self.length_change.max_length or 0)
        self.eval_limit = self.eval_max_length or self.longest
        self.conditions = conditions_of(self.test_batch_sizes, self.test_eval_stats)
        self.drawn = lru_cache(maxsize=4)(self.examples)

    @abstractmethod
    def examples(self, one: Pass) -> Any:
        """Return the examples of a pass, with `lengths` and `describe`; `drawn` caches the call."""

    @abstractmethod
    def collate(self, one: Pass, indices: np.ndarray, *, padding: float = 0.0) -> Any:
        """Return a batch of examples; an example is the same in whatever batch it is."""

    @abstractmethod
    def blind_sums(self, split: str) -> dict[str, float]:
        """Return a split's sums of `tally` for a model that knows only the target frequencies."""

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

    @property
    def splits(self) -> Mapping[str, Any]:
        return self.data.splits

    def describe(self) -> dict[str, Any]:
        passes = {split: self.evaluated(split) for split in self.splits}
        passes["train"] = self._trained(0, 0)
        return {
            **self.data.description,
            "examples": {split: self.drawn(one).describe() for split, one in passes.items()},
            "padding_share": self.padding_share(),
        }

    def _trained(self, seed: int, epoch: int) -> Pass:
        return Pass("train", self.max_length, seed, epoch)

    def evaluated(self, split: str) -> Pass:
        """Return the pass that a split is scored on, the same in every run."""
        return Pass(split, self.eval_limit, EVAL_SEED, 0)

    def spec(self) -> Text:
        return Text(
            vocab=len(self.data.tokenizer),
            pad_id=DocumentTokenizer.pad_id,
            longest=Longest(
                self.reach(0),
                "examples have up to",
                "raise it (learned positions beyond the longest training length stay as they were "
                "drawn), or lower task.max_length or task.eval_max_length",
            ),
            causal=self.causal,
        )

    def reach(self, room: int) -> int:
        return max(self.longest, self.eval_limit)

    def lengths(self, split: str) -> np.ndarray:
        self.split(split)
        return self.drawn(self.evaluated(split)).lengths[:, None]

    def training_lengths(self, seed: int, epoch: int) -> np.ndarray:
        return self.drawn(self._trained(seed, epoch)).lengths[:, None]

    def train_batches(self, shard: Shard, seed: int) -> DocumentStream:
        return DocumentStream(self, shard, seed, limit=self.max_length, later=self.length_change)

    def calibration_batches(self, shard: Shard, seed: int) -> DocumentStream:
        limit = self.length_change.max_length or self.max_length
        return DocumentStream(self, shard, seed, limit=limit, later=NEVER)

    def training_batch(self, indices: np.ndarray, epoch: int, *, seed: int) -> Any:
        return self.collate(self._trained(seed, epoch), indices)

    def evaluation_batch(self, split: str, indices: np.ndarray, *, padding: float) -> Any:
        return self.collate(self.evaluated(split), indices, padding=padding)

    def floors(self) -> dict[str, float]:
        return {name: score.value for name, score in self.scores(self.blind_sums("test")).items()}
