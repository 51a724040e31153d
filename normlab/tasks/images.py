"""Image classification. An image has many positions, but counts as one token of the budget."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from normlab.data.images import Augmentation, Images, ImageSource
from normlab.errors import UserError
from normlab.metrics.counts import mean_score, unigram_nll
from normlab.models.base import Image
from normlab.records.record import Score
from normlab.tasks.base import Batch, Draw, Task, label_smoothed_cross_entropy, log_probabilities

_BINS = 15


@dataclass(frozen=True, kw_only=True)
class ImageBatch(Batch):
    """Images and their class indices as tensors, without padding."""

    pixels: UInt8[Tensor, "B H W C"]
    labels: Int[Tensor, "B"]


@dataclass(kw_only=True, eq=False)
class Classification(Task):
    """Image classification; batch sizes count images.

    Attributes:
        source: where the images come from.
        augmentation: how training images are shifted and mirrored.
        label_smoothing: share of the target distribution spread over all classes.
    """

    source: ImageSource
    augmentation: Augmentation
    label_smoothing: float
    headline = "accuracy"
    padded = False
    tallied: ClassVar[Mapping[str, tuple[int, ...]]] = {"nll": (), "bins": (3, _BINS)}

    def __post_init__(self) -> None:
        if self.batch_size is None:
            raise UserError(
                f"max_tokens={self.max_tokens}: image batches are measured in images, not tokens; "
                "set batch_size"
            )

    @cached_property
    def splits(self) -> Mapping[str, Images]:
        return self.source.splits()

    @cached_property
    def _standard(self) -> tuple[Tensor, Tensor]:
        """Return each channel's mean and standard deviation over the training images."""
        pixels = self.splits["train"].pixels
        mean = pixels.mean((0, 1, 2), dtype=np.float64)
        square = np.einsum("nhwc,nhwc->c", pixels, pixels, dtype=np.float64)  # without a wide copy
        square /= pixels.size / len(mean)
        return torch.from_numpy(mean), torch.from_numpy(np.sqrt(square - mean**2))

    def describe(self) -> dict[str, Any]:
        height, width, channels = self.splits["train"].pixels.shape[1:]
        return {
            "label": self.source.label,
            "licence": self.source.licence,
            "unit": "pictures",
            "source": self.source.origin,
            "classes": list(self.source.classes),
            "size": {"height": height, "width": width, "channels": channels},
            "sizes": {split: len(images) for split, images in self.splits.items()},
            "checksums": self.checksums(),
            "padding_share": 0.0,
        }

    def checksums(self) -> Mapping[str, Any]:
        return {split: images.checksum() for split, images in self.splits.items()}

    def vocabulary(self) -> dict[str, str]:
        return {"classes.json": json.dumps(self.source.classes, indent=1)}

    def spec(self) -> Image:
        height, width, channels = self.splits["train"].pixels.shape[1:]
        return Image(height, width, channels, len(self.source.classes))

    def lengths(self, split: str, draw: Draw | None = None) -> np.ndarray:
        images = self.split(split)
        height, width = images.pixels.shape[1:3]
        return np.full((len(images), 1), height * width)

    def collate(
        self, split: str, indices: np.ndarray, draw: Draw | None = None, *, padding: float = 0.0
    ) -> ImageBatch:
        chosen = self.split(split).pick(indices)
        pixels = chosen.pixels
        if draw is not None:
            pixels = self.augmentation(pixels, indices=indices, seed=draw.seed, epoch=draw.epoch)
        count, height, width, _ = pixels.shape
        return ImageBatch(
            pixels=torch.from_numpy(np.ascontiguousarray(pixels)),
            labels=torch.from_numpy(chosen.labels),
            counts={"loss": count},
            tokens=count,
            positions=count * height * width,
        )

    def logits(self, model: nn.Module, batch: ImageBatch) -> Float[Tensor, "B K"]:
        """Return the logits; images are first standardized to mean 0 and variance 1 per channel."""
        mean, deviation = (table.to(next(model.parameters())) for table in self._standard)
        return model((batch.pixels.to(mean.dtype) - mean) / deviation)

    def losses(self, model: nn.Module, batch: ImageBatch) -> dict[str, Tensor]:
        logits = self.logits(model, batch)
        return {"loss": label_smoothed_cross_entropy(logits, batch.labels, self.label_smoothing)[0]}

    def tally(self, model: nn.Module, batch: ImageBatch) -> dict[str, Tensor]:
        logits = self.logits(model, batch)
        confidence, named = logits.double().softmax(-1).max(-1)
        hits = (named == batch.labels).double()
        place = (confidence * _BINS).ceil().long().clamp(1, _BINS) - 1
        count_confidence_hits = torch.stack([torch.ones_like(hits), confidence, hits], dim=1)
        return {
            "nll": -log_probabilities(logits, batch.labels).double(),
            "bins": count_confidence_hits[:, :, None] * F.one_hot(place, _BINS)[:, None],
        }

    def scores(self, sums: Mapping[str, Any]) -> dict[str, Score]:
        """Return the loss without smoothing, the accuracy, and the calibration error.

        The calibration error is the mean distance between confidence and accuracy over 15 bins of
        equal width in confidence, weighted by their image counts (Guo et al. 2017, equation 3).
        """
        counts, confidences, hits = np.asarray(sums["bins"])
        total = int(counts.sum())
        apart = float(np.abs(confidences - hits).sum())
        return {
            "loss": mean_score(sums["nll"], total, higher_is_better=False),
            "accuracy": mean_score(float(hits.sum()), total, higher_is_better=True),
            "calibration_error": mean_score(apart, total, higher_is_better=False),
        }

    def floors(self) -> dict[str, float]:
        classes = np.bincount(self.splits["test"].labels, minlength=len(self.source.classes))
        return {
            "loss": unigram_nll(classes.tolist()) / float(classes.sum()),
            "accuracy": float(classes.max() / classes.sum()),
        }
