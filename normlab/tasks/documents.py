"""What masked and causal language modelling share: documents, their examples, a tally of scores.

A task of this kind says what an example is (`examples`) and what a model gets right of each
(`tally`). Sums by example make every score, of a whole split and of its length buckets.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from normlab.data.batching import Batching, eval_batches, padding_share
from normlab.data.batching import BatchStream as IndexStream
from normlab.data.documents.corpus import DocumentCorpus
from normlab.data.documents.prepare import PreparedDocuments, prepare_documents
from normlab.data.documents.streams import EVAL_SEED
from normlab.data.documents.tokenizer import DocumentTokenizer, Pieces
from normlab.distributed import Shard, sum_scalars
from normlab.models.base import Longest, Text
from normlab.norms.base import EvalStats
from normlab.progress import counted
from normlab.records.record import Score
from normlab.tasks.base import Condition, Task
from normlab.tasks.document_stream import DocumentStream, LengthChange


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
class TextBatch:
    """What batches of one stream of text have in common."""

    ids: Tensor
    valid: Tensor
    counts: dict[str, int]
    tokens: int
    positions: int
    padding: int

    def to(self, device: torch.device) -> Any:
        """Return the batch on a device."""
        moved = {
            name: value.to(device, non_blocking=True)
            for name, value in vars(self).items()
            if torch.is_tensor(value)
        }
        return replace(self, **moved)


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
        length_buckets: upper bounds of the lengths that test scores are told apart by.
        targets: see `Task`.
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
        sizes = [Condition(batch_size=size) for size in self.test_batch_sizes]
        stats = [Condition(eval_stats=stats) for stats in self.test_eval_stats]
        both = [replace(size, eval_stats="batch") for size in sizes]
        self.conditions = [*sizes, *stats, *(both if "batch" in self.test_eval_stats else ())]
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
    def tally(self, model: Any, batch: Any) -> dict[str, Tensor]:
        """Return sums of each example, [B] each; a figure's count has a name of its own."""

    @abstractmethod
    def scores(self, sums: Mapping[str, float]) -> dict[str, Score]:
        """Return scores from the sums of `tally` over examples."""

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
        if split not in self.data.splits:
            raise ValueError(f"no split {split!r}: the corpus has {', '.join(self.data.splits)}")
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

    @torch.no_grad()
    def evaluate(
        self,
        model: Any,
        split: str,
        shard: Shard,
        *,
        outputs: Path | None = None,
        batch_size: int | None = None,
    ) -> dict[str, Score]:
        """Score a split; a test also by the length of its examples, `length_33_64/loss`."""
        lengths = self.lengths(split)
        device = next(model.parameters()).device
        bucket = np.searchsorted(self.length_buckets, lengths[:, 0])
        sums: dict[str, np.ndarray] = {}
        size = batch_size or self.eval_batch_size
        for indices in counted(eval_batches(lengths, batch_size=size, shard=shard), len):
            batch = self.batch(split, indices.tolist()).to(device)
            for name, values in self.tally(model, batch).items():
                by_bucket = sums.setdefault(name, np.zeros(len(self.length_buckets) + 1))
                np.add.at(by_bucket, bucket[indices], values.double().cpu().numpy())
        names = sorted(self.tallied)
        empty = np.zeros(len(self.length_buckets) + 1)
        flat = np.concatenate([sums.get(name, empty) for name in names])
        table = np.reshape(sum_scalars(flat.tolist()), (len(names), -1))
        scores = self.scores(dict(zip(names, table.sum(axis=1).tolist(), strict=True)))
        if split.startswith("test") and batch_size is None:
            for number, name in enumerate(self._bucket_names()):
                part = dict(zip(names, table[:, number].tolist(), strict=True))
                if part["tokens"]:  # examples of unknown words alone predict none
                    found = self.scores(part)
                    scores |= {f"{name}/{figure}": score for figure, score in found.items()}
        return scores

    def score_names(self) -> list[str]:
        """Return the names of a validation's scores."""
        return list(self.scores(dict.fromkeys(self.tallied, 1.0)))

    def floors(self) -> dict[str, float]:
        """Return the scores of the test by the frequencies of its own targets alone."""
        return {name: score.value for name, score in self.scores(self.blind_sums("test")).items()}

    @property
    @abstractmethod
    def tallied(self) -> Sequence[str]:
        """The names that `tally` returns, on every rank the same."""

    def _bucket_names(self) -> list[str]:
        bounds = [0, *self.length_buckets]
        inner = [f"length_{low + 1}_{high}" for low, high in pairwise(bounds)]
        return [*inner, f"length_over_{bounds[-1]}"]

    def test_splits(self) -> list[str]:
        """Return the test sets of the corpus, the one called `test` first."""
        names = [name for name in self.data.splits if name.startswith("test")]
        return sorted(names, key=lambda name: (name != "test", name))


def padded_width(tokens: int, rows: int, width: int, padding: float) -> int:
    """Return the width at which `rows` rows with `tokens` real tokens have `padding` of it."""
    return max(width, int(np.ceil(tokens / (rows * (1 - padding)) - 1e-9)))
