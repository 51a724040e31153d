"""Handwritten digits of 8 by 8 pixels, which come with scikit-learn: pictures without a download.

1,797 pictures of the test set of Alpaydin and Kaynak 1998 ("Optical Recognition of Handwritten
Digits", UCI), values 0 to 16. The publisher has no split into train and test here, so one is drawn:
a sixth of each class is the test, the same in every run.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from normlab.data.pictures.source import Pictures, PictureSource, by_class

_TEST_SHARE, _TEST_SEED = 1 / 6, 1
_SIDE, _BRIGHTEST = 8, 16


class Digits(PictureSource):
    """The digits of scikit-learn, one channel, in ten classes."""

    licence = "CC BY 4.0 (UCI Machine Learning Repository)"
    classes = tuple("0123456789")

    def __init__(self, *, valid_size: int) -> None:
        self.valid_size = valid_size

    @property
    def label(self) -> str:
        """What results may be called."""
        return "digits 8x8"

    def published(self) -> Mapping[str, Pictures]:
        """Return the pictures, a sixth of each class as the test."""
        from sklearn.datasets import load_digits

        rows, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
        images = rows.reshape(-1, _SIDE, _SIDE, 1)
        pixels = np.rint(images * (255 / _BRIGHTEST)).astype(np.uint8)
        whole = Pictures(pixels, labels.astype(np.int64))
        test = by_class(whole.labels, _TEST_SHARE, seed=_TEST_SEED)
        train = np.setdiff1d(np.arange(len(whole)), test)
        return {"train": whole.pick(train), "test": whole.pick(test)}

    def description(self) -> dict[str, Any]:
        """Return where they come from."""
        return {"source": "scikit-learn, load_digits"}
