"""Labelled images: the base class of image sources, augmentation, and small handwritten digits."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from normlab.data.bundled import read_bundled
from normlab.data.example_random import random_numbers
from normlab.data.labelled import Labelled, LabelledSource, stratified_split


@dataclass(frozen=True)
class Images(Labelled):
    """Images of one size, with values from 0 to 255, and their class indices."""

    pixels: UInt8[np.ndarray, "N H W C"]
    labels: Int[np.ndarray, "N"]

    def checksum(self) -> str:
        """Return the SHA-256 of the pixels and labels."""
        digest = hashlib.sha256(self.pixels.tobytes())
        digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def pick(self, indices: np.ndarray) -> "Images":
        """Return the images at `indices`, in that order."""
        return Images(self.pixels[indices], self.labels[indices])


class ImageSource(LabelledSource[Images]):
    """A source of labelled images."""

    unit = "pictures"


@dataclass(kw_only=True, eq=False)
class Digits(ImageSource):
    """Handwritten digits of 8 by 8 pixels in ten classes, which need no download.

    The 1,797 images are the test set of Alpaydin and Kaynak 1998 ("Optical Recognition of
    Handwritten Digits", UCI), with values 0 to 16, scaled here to 0 to 255. They come without a
    split, so a sixth of each class is the test split, which is the same in every run.
    """

    valid_size: int
    label = "digits 8x8"
    origin = "scikit-learn, load_digits"  # the source of this copy of the published test set
    licence = "CC BY 4.0 (UCI Machine Learning Repository)"
    classes = tuple("0123456789")

    def files(self) -> Mapping[str, Path]:
        return {}

    def published(self) -> Mapping[str, Images]:
        data = read_bundled("digits")
        pixels = np.rint(data.features.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
        test, train = stratified_split(Images(pixels, data.labels), 1 / 6, seed=1)
        return {"train": train, "test": test}


@dataclass(frozen=True)
class Augmentation:
    """Random shifts and horizontal flips, as in He et al. 2016 (section 4.2).

    The change to an image depends only on (seed, epoch, image index).

    Attributes:
        shift: maximum shift in pixels, horizontal and vertical; uncovered pixels become black.
        flip: whether each image is flipped horizontally with probability 1/2.
    """

    shift: int
    flip: bool

    def __call__(
        self,
        pixels: UInt8[np.ndarray, "B H W C"],
        *,
        indices: Int[np.ndarray, "B"],
        seed: int,
        epoch: int,
    ) -> UInt8[np.ndarray, "B H W C"]:
        """Return augmented images; `indices` are their positions in the training split."""
        _, height, width, _ = pixels.shape
        drawn = random_numbers(
            "pictures", seed=seed, epoch=epoch, examples=indices, width=1, count=3
        )[:, 0]
        corners = (drawn[:, :2] * (2 * self.shift + 1)).astype(np.int64).tolist()
        room = ((0, 0), (self.shift, self.shift), (self.shift, self.shift), (0, 0))
        out = np.empty_like(pixels)
        for number, image in enumerate(np.pad(pixels, room)):
            down, right = corners[number]
            cut = image[down : down + height, right : right + width]
            out[number] = cut[:, ::-1] if self.flip and drawn[number, 2] < 0.5 else cut
        return out
