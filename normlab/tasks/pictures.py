"""Naming the class of a picture: one picture is one example, one unit, and many positions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from normlab.data.batching import BatchStream as IndexStream
from normlab.data.batching import eval_batches
from normlab.data.pictures.augment import Augmentation
from normlab.data.pictures.source import Pictures, PictureSource
from normlab.distributed import Shard, sum_scalars
from normlab.metrics.counts import mean_score, unigram_nll
from normlab.models.base import Image
from normlab.norms.base import EvalStats
from normlab.records.record import Score
from normlab.tasks.base import BatchStream, Condition, Task
from normlab.tasks.cross_entropy import label_smoothed_cross_entropy, log_probabilities

LOSS = "loss"
_BINS = 15
_TALLIED = 3  # counts, confidences and hits of each bin


@dataclass(frozen=True, kw_only=True)
class PictureBatch:
    """Pictures as tensors, with the number of their class. There is no padding."""

    pixels: UInt8[Tensor, "B H W C"]
    labels: Int[Tensor, "B"]
    counts: dict[str, int]
    tokens: int
    positions: int
    padding: int = 0

    def to(self, device: torch.device) -> "PictureBatch":
        """Return the batch on a device."""
        return replace(
            self,
            pixels=self.pixels.to(device, non_blocking=True),
            labels=self.labels.to(device, non_blocking=True),
        )


class PictureStream(BatchStream):
    """Training batches, varied anew in each epoch."""

    def __init__(self, task: "Classification", indices: IndexStream, seed: int):
        self._task, self._indices, self._seed = task, indices, seed

    @property
    def epochs(self) -> float:
        """Return the number of epochs drawn, a begun one by its share."""
        place = self._indices.state_dict()
        return place["epoch"] + place["index"] / self._indices.batches_per_epoch

    def __next__(self) -> PictureBatch:
        epoch = self._indices.epoch
        return self._task.varied(next(self._indices), seed=self._seed, epoch=epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the stream."""
        return self._indices.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place."""
        self._indices.load_state_dict(state)


@dataclass(kw_only=True, eq=False)
class Classification(Task):
    """Name the class of a picture.

    Attributes:
        source: where the pictures come from.
        augmentation: how training pictures are varied.
        label_smoothing: share of the target distribution spread over the classes.
        batch_size: pictures a micro-batch.
        eval_batch_size: pictures a batch in validation and test.
        test_batch_sizes, test_eval_stats: under what else the test is scored, the sizes also with
            the statistics of the batch.
    """

    source: PictureSource
    augmentation: Augmentation
    label_smoothing: float
    batch_size: int | None
    max_tokens: int | None
    eval_batch_size: int
    test_batch_sizes: Sequence[int]
    test_eval_stats: Sequence[EvalStats]
    headline = "accuracy"
    padded = False

    def __post_init__(self) -> None:
        if self.batch_size is None:
            raise ValueError(
                f"max_tokens={self.max_tokens}: a batch of pictures is counted in pictures; give "
                "batch_size"
            )
        sizes = [Condition(batch_size=size) for size in self.test_batch_sizes]
        stats = [Condition(eval_stats=stats) for stats in self.test_eval_stats]
        both = [replace(size, eval_stats="batch") for size in sizes]
        self.conditions = [*sizes, *stats, *(both if "batch" in self.test_eval_stats else ())]

    @cached_property
    def data(self) -> dict[str, Pictures]:
        """Return the splits, read on first use."""
        return self.source.splits()

    @cached_property
    def _standard(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of each channel over the training pictures."""
        pixels = self.data["train"].pixels
        sums = np.zeros((2, pixels.shape[-1]))
        for part in np.array_split(pixels, len(pixels) // 1000 + 1):
            values = part.reshape(-1, pixels.shape[-1]).astype(np.float64)
            sums += values.sum(0), np.square(values).sum(0)
        mean, square = sums / (pixels.size / pixels.shape[-1])
        return torch.from_numpy(mean), torch.from_numpy(np.sqrt(square - mean**2))

    def describe(self) -> dict[str, Any]:
        """Return the data's description."""
        height, width, channels = self.data["train"].pixels.shape[1:]
        return {
            "label": self.source.label,
            "licence": self.source.licence,
            "unit": "pictures",
            **self.source.description(),
            "classes": list(self.source.classes),
            "size": {"height": height, "width": width, "channels": channels},
            "sizes": {split: len(pictures) for split, pictures in self.data.items()},
            "checksums": {split: pictures.checksum() for split, pictures in self.data.items()},
            "padding_share": 0.0,
        }

    def spec(self) -> Image:
        """Return the size of the pictures and the number of their classes."""
        height, width, channels = self.data["train"].pixels.shape[1:]
        return Image(height, width, channels, len(self.source.classes))

    def train_batches(self, shard: Shard, seed: int) -> PictureStream:
        """Return the endless training batches of one rank."""
        indices = IndexStream(
            self.lengths("train"),
            batching="random",
            batch_size=self.batch_size,
            max_tokens=None,
            seed=seed,
            shard=shard,
        )
        return PictureStream(self, indices, seed)

    def varied(self, indices: np.ndarray, *, seed: int, epoch: int) -> PictureBatch:
        """Return training pictures as an epoch varies them."""
        chosen = self.data["train"].pick(indices)
        pixels = self.augmentation(chosen.pixels, indices=indices, seed=seed, epoch=epoch)
        return _batch(pixels, chosen.labels)

    def lengths(self, split: str) -> np.ndarray:
        """Return the pixels of each picture, [n, 1]."""
        pictures = self._split(split)
        height, width = pictures.pixels.shape[1:3]
        return np.full((len(pictures), 1), height * width)

    def batch(self, split: str, indices: Sequence[int], *, padding: float = 0.0) -> PictureBatch:
        """Return chosen pictures as they are; they have no padding, whatever is asked."""
        chosen = self._split(split).pick(np.asarray(indices, dtype=np.int64))
        return _batch(chosen.pixels, chosen.labels)

    def logits(self, model: nn.Module, batch: PictureBatch) -> Float[Tensor, "B K"]:
        """Return the model's logits of pictures whose channels have mean 0 and variance 1."""
        mean, deviation = self._tables(model)
        return model((batch.pixels.to(mean.dtype) - mean) / deviation)

    def _tables(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of the channels where, and as, the model computes."""
        kind = next(model.parameters())
        mean, deviation = self._standard
        return mean.to(kind), deviation.to(kind)

    def losses(self, model: nn.Module, batch: PictureBatch) -> dict[str, Tensor]:
        """Return the cross-entropy summed over the pictures."""
        logits = self.logits(model, batch)
        return {LOSS: label_smoothed_cross_entropy(logits, batch.labels, self.label_smoothing)[0]}

    @torch.no_grad()
    def evaluate(
        self,
        model: nn.Module,
        split: str,
        shard: Shard,
        *,
        outputs: Path | None = None,
        batch_size: int | None = None,
    ) -> dict[str, Score]:
        """Score a split: loss without smoothing, accuracy, and calibration error."""
        device = next(model.parameters()).device
        sums = np.zeros(1)
        bins = np.zeros((_TALLIED, _BINS))
        size = batch_size or self.eval_batch_size
        for indices in eval_batches(self.lengths(split), batch_size=size, shard=shard):
            batch = self.batch(split, indices.tolist()).to(device)
            logits = self.logits(model, batch)
            sums -= float(log_probabilities(logits, batch.labels).double().sum())
            confidence, named = logits.double().softmax(-1).max(-1)
            hits = (named == batch.labels).double()
            place = (confidence * _BINS).ceil().long().clamp(1, _BINS) - 1
            for row, values in zip(bins, (torch.ones_like(hits), confidence, hits), strict=True):
                row += torch.bincount(place, values, minlength=_BINS).cpu().numpy()
        total = sum_scalars([*sums.tolist(), *bins.flatten().tolist()])
        return _scores(total[0], np.reshape(total[1:], bins.shape))

    def score_names(self) -> list[str]:
        """Return the names of a validation's scores."""
        return list(_scores(1.0, np.ones((_TALLIED, _BINS))))

    def floors(self) -> dict[str, float]:
        """Return loss and accuracy by the frequencies of the test's own classes alone."""
        classes = np.bincount(self.data["test"].labels, minlength=len(self.source.classes))
        return {
            "loss": unigram_nll(classes.tolist()) / float(classes.sum()),
            "accuracy": float(classes.max() / classes.sum()),
        }

    def test_splits(self) -> list[str]:
        """Return the one test split."""
        return ["test"]

    def _split(self, split: str) -> Pictures:
        if split not in self.data:
            raise ValueError(f"no split {split!r}: there are {', '.join(self.data)}")
        return self.data[split]


def _batch(pixels: np.ndarray, labels: np.ndarray) -> PictureBatch:
    count, height, width, _ = pixels.shape
    return PictureBatch(
        pixels=torch.from_numpy(np.ascontiguousarray(pixels)),
        labels=torch.from_numpy(np.ascontiguousarray(labels)),
        counts={LOSS: count},
        tokens=count,
        positions=count * height * width,
    )


def _scores(nll: float, bins: np.ndarray) -> dict[str, Score]:
    """Return the scores of summed losses, and of counts, confidences and hits by confidence.

    The calibration error is the mean distance of confidence and accuracy over 15 equal bins of
    confidence, weighed by their pictures (Guo et al. 2017, equation 3).
    """
    counts, confidences, hits = bins
    total = int(counts.sum())
    apart = float(np.abs(confidences - hits).sum())
    return {
        LOSS: mean_score(nll, total, higher_is_better=False),
        "accuracy": mean_score(float(hits.sum()), total, higher_is_better=True),
        "calibration_error": mean_score(apart, total, higher_is_better=False),
    }
