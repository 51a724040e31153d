"""Labelled images: the base class of image sources, augmentation, and scikit-learn's digits."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Int, UInt8

from normlab.data.dice import dice
from normlab.data.source import DataSource
from normlab.errors import UserError


@dataclass(frozen=True)
class Images:
    """Images of one size, with values from 0 to 255, and their class numbers."""

    pixels: UInt8[np.ndarray, "N H W C"]
    labels: Int[np.ndarray, "N"]

    def __len__(self) -> int:
        return len(self.labels)

    def checksum(self) -> str:
        """Return the SHA-256 of the pixels and labels."""
        digest = hashlib.sha256(self.pixels.tobytes())
        digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def pick(self, indices: np.ndarray) -> "Images":
        """Return the images at `indices`, in that order."""
        return Images(self.pixels[indices], self.labels[indices])


class ImageSource(DataSource):
    """A source of labelled images.

    Attributes:
        label, origin: the name of the images in result tables, such as `CIFAR-10 (JPEG)`, and their
            source in the record; both are set once `published` has returned.
        classes: the names of the classes, in the order of their numbers.
        valid_size: number of published training images to hold out for validation.
        train_size: number of other images to train on, an equal share per class; None for all.
    """

    label: str
    origin: str
    licence: ClassVar[str]
    classes: tuple[str, ...]
    valid_size: int
    train_size: int | None = None

    @abstractmethod
    def published(self) -> Mapping[str, Images]:
        """Return the published splits, `train` and `test`.

        Raises UserError if the images are missing (saying where to get them) or damaged.
        """

    def splits(self) -> dict[str, Images]:
        """Return `train`, `valid` and `test`; `valid` takes the same share of each class.

        Raises UserError if `valid_size` or `train_size` is out of range.
        """
        published = self.published()
        train = published["train"]
        if not 0 < self.valid_size <= len(train) - len(self.classes):
            raise UserError(
                f"task.source.valid_size={self.valid_size}: there are {len(train)} training "
                "images; hold out at least 1, but keep at least 1 per class for training"
            )
        valid, train = _parted(train, self.valid_size / len(train), seed=0)
        if self.train_size is not None:
            if self.train_size > len(train):
                raise UserError(f"task.source.train_size={self.train_size} exceeds {len(train)}")
            train, _ = _parted(train, self.train_size / len(train), seed=self.train_size)
        return {"train": train, "valid": valid, "test": published["test"]}


def _parted(images: Images, share: float, *, seed: int) -> tuple[Images, Images]:
    """Draw a share of the images of each class at random; return them and the rest."""
    rng = np.random.default_rng([seed, len(images)])
    picked = [
        rng.permutation(members)[: round(share * len(members))]
        for members in (np.flatnonzero(images.labels == x) for x in np.unique(images.labels))
    ]
    chosen = np.sort(np.concatenate(picked))
    return images.pick(chosen), images.pick(np.setdiff1d(np.arange(len(images)), chosen))


@dataclass(kw_only=True, eq=False)
class Digits(ImageSource):
    """The handwritten digits included in scikit-learn: 8 by 8 pixels, ten classes, no download.

    The 1,797 images are the test set of Alpaydin and Kaynak 1998 ("Optical Recognition of
    Handwritten Digits", UCI), with values 0 to 16. No split is published, so a sixth of each class
    is the test split, the same in every run.
    """

    valid_size: int
    label = "digits 8x8"
    origin = "scikit-learn, load_digits"
    licence = "CC BY 4.0 (UCI Machine Learning Repository)"
    classes = tuple("0123456789")

    def files(self) -> Mapping[str, Path]:
        return {}

    def published(self) -> Mapping[str, Images]:
        from sklearn.datasets import load_digits

        rows, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
        pixels = np.rint(rows.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
        test, train = _parted(Images(pixels, labels.astype(np.int64)), 1 / 6, seed=1)
        return {"train": train, "test": test}


@dataclass(frozen=True)
class Augmentation:
    """Random shifts and horizontal flips, as in He et al. 2016 (section 4.2).

    How an image is changed depends only on (seed, epoch, image index).

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
        drawn = dice("pictures", seed=seed, epoch=epoch, examples=indices, width=1, count=3)[:, 0]
        corners = (drawn[:, :2] * (2 * self.shift + 1)).astype(np.int64).tolist()
        room = ((0, 0), (self.shift, self.shift), (self.shift, self.shift), (0, 0))
        out = np.empty_like(pixels)
        for number, image in enumerate(np.pad(pixels, room)):
            down, right = corners[number]
            cut = image[down : down + height, right : right + width]
            out[number] = cut[:, ::-1] if self.flip and drawn[number, 2] < 0.5 else cut
        return out
