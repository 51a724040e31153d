"""Image classification. An image has many positions, but counts as one token of the budget."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from normlab.data.images import Augmentation, Images, ImageSource
from normlab.models.base import Image
from normlab.tasks.base import Draw
from normlab.tasks.classification import Classification, LabelledBatch


@dataclass(frozen=True, kw_only=True)
class ImageBatch(LabelledBatch):
    """Images and their class indices as tensors, without padding."""

    pixels: UInt8[Tensor, "B H W C"]


@dataclass(kw_only=True, eq=False)
class ImageClassification(Classification):
    """Image classification. Batch sizes count images.

    Attributes:
        source: where the images come from.
        augmentation: how training images are shifted and mirrored.
    """

    source: ImageSource
    augmentation: Augmentation
    _brightness: float = field(default=1.0, init=False, repr=False)

    @cached_property
    def splits(self) -> Mapping[str, Images]:
        return self.source.splits()

    @cached_property
    def _standard(self) -> tuple[Tensor, Tensor]:
        """Return each channel's mean and standard deviation over the training images."""
        pixels = self.splits["train"].pixels
        mean = pixels.mean((0, 1, 2), dtype=np.float64)
        # sum in float64 without making a float64 copy
        square = np.einsum("nhwc,nhwc->c", pixels, pixels, dtype=np.float64)
        square /= pixels.size / len(mean)
        return torch.from_numpy(mean), torch.from_numpy(np.sqrt(square - mean**2))

    def describe(self) -> dict[str, Any]:
        height, width, channels = self.splits["train"].pixels.shape[1:]
        size = {"height": height, "width": width, "channels": channels}
        return {**super().describe(), "size": size}

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
        """Return the logits of images standardized to mean 0 and variance 1 per channel."""
        mean, deviation = (table.to(next(model.parameters())) for table in self._standard)
        return model((batch.pixels.to(mean.dtype) * self._brightness - mean) / deviation)

    @contextmanager
    def dimmed(self, brightness: float) -> Iterator[None]:
        """Multiply the pixels, from 0 to 255, by a factor inside the context."""
        self._brightness = brightness
        try:
            yield
        finally:
            self._brightness = 1.0
