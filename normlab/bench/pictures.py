"""Pictures of noise in the size of CIFAR-10's: time does not depend on what they show."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from normlab.data.pictures.source import Pictures, PictureSource

_SIZES = {"train": 2048, "test": 256}


class SyntheticPictures(PictureSource):
    """Noise of 32 x 32 pixels in ten classes."""

    licence = "none"
    classes = tuple(map(str, range(10)))
    valid_size = 256

    @property
    def label(self) -> str:
        """Name what is measured on them."""
        return "noise"

    def published(self) -> Mapping[str, Pictures]:
        """Draw the splits, alike in every process."""
        rng = np.random.default_rng(1)
        return {
            split: Pictures(
                rng.integers(256, size=(count, 32, 32, 3), dtype=np.uint8),
                np.arange(count) % len(self.classes),
            )
            for split, count in _SIZES.items()
        }

    def description(self) -> dict[str, Any]:
        """Say that they show nothing."""
        return {"source": "drawn"}
