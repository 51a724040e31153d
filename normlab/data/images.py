"""Images with a class each: the contract of a source, augmentation, and scikit-learn's digits."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int, UInt8

from normlab.data.batching import dice

_HELD_OUT_SEED = 0  # the valid split is the same in every run
_TEST_SHARE, _TEST_SEED = 1 / 6, 1  # of the digits
_SIDE, _BRIGHTEST = 8, 16


@dataclass(frozen=True)
class Images:
    """Images of one size, values 0 to 255, and the number of the class of each."""

    pixels: UInt8[np.ndarray, "N H W C"]
    labels: Int[np.ndarray, "N"]

    def __len__(self) -> int:
        return len(self.labels)

    def checksum(self) -> str:
        """Return the SHA-256 of pixels and labels."""
        digest = hashlib.sha256(self.pixels.tobytes())
        digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def pick(self, indices: np.ndarray) -> "Images":
        """Return some of the images, in the order of the indices."""
        return Images(self.pixels[indices], self.labels[indices])


class ImageSource(ABC):
    """Where images come from.

    Attributes:
        label: what results on these images may be called, such as `CIFAR-10 (JPEG)`; set at the
            latest by `published`.
        classes: the names of the classes, in the order of their numbers.
        valid_size: how many of the published training images are held out for validation.
        train_size: how many of the other ones are used, of each class its share; None is all.
    """

    label: str
    licence: ClassVar[str]
    classes: tuple[str, ...]
    valid_size: int
    train_size: int | None = None

    @abstractmethod
    def published(self) -> Mapping[str, Images]:
        """Return the published splits, `train` and `test`.

        Raises ValueError saying where to get the images, or naming a file that is damaged.
        """

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Return what the record says of the images in addition to sizes and checksums."""

    def splits(self) -> dict[str, Images]:
        """Return `train`, `valid` and `test`; `valid` has its share of each training class.

        Raises ValueError for sizes that the images cannot have, and for an unknown class.
        """
        published = self.published()
        for split, images in published.items():
            unknown = np.flatnonzero((images.labels < 0) | (images.labels >= len(self.classes)))
            if len(unknown):
                raise ValueError(
                    f"{self.label}: image {unknown[0] + 1} of {split} is of class "
                    f"{images.labels[unknown[0]]}, and classes are 0 to {len(self.classes) - 1}: "
                    "its source is damaged; get it again"
                )
        train = published["train"]
        if not 0 < self.valid_size <= len(train) - len(self.classes):
            raise ValueError(
                f"task.source.valid_size={self.valid_size}: there are {len(train)} training "
                f"images of {len(self.classes)} classes; hold out at least one, and leave some"
            )
        held_out = by_class(train.labels, self.valid_size / len(train), seed=_HELD_OUT_SEED)
        valid, train = train.pick(held_out), train.pick(_others(train, held_out))
        if self.train_size is not None:
            if self.train_size > len(train):
                raise ValueError(
                    f"task.source.train_size={self.train_size}: only {len(train)} training images "
                    "are not held out"
                )
            share = self.train_size / len(train)
            train = train.pick(by_class(train.labels, share, seed=self.train_size))
        return {"train": train, "valid": valid, "test": published["test"]}


def _others(images: Images, indices: np.ndarray) -> np.ndarray:
    return np.setdiff1d(np.arange(len(images)), indices)


def by_class(labels: Int[np.ndarray, "N"], share: float, *, seed: int) -> Int[np.ndarray, "K"]:
    """Return the indices of a share of the images of each class, ascending, drawn by a seed."""
    rng = np.random.default_rng([seed, len(labels)])
    picked = [
        rng.permutation(members)[: round(share * len(members))]
        for members in (np.flatnonzero(labels == name) for name in np.unique(labels))
    ]
    return np.sort(np.concatenate(picked))


class Digits(ImageSource):
    """The handwritten digits that come with scikit-learn: 8 by 8 pixels, ten classes, no download.

    1,797 images of the test set of Alpaydin and Kaynak 1998 ("Optical Recognition of Handwritten
    Digits", UCI), values 0 to 16. They have no published split, so a sixth of each class is the
    test, the same in every run.
    """

    label = "digits 8x8"
    licence = "CC BY 4.0 (UCI Machine Learning Repository)"
    classes = tuple("0123456789")

    def __init__(self, *, valid_size: int) -> None:
        self.valid_size = valid_size

    def published(self) -> Mapping[str, Images]:
        from sklearn.datasets import load_digits

        rows, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
        images = rows.reshape(-1, _SIDE, _SIDE, 1)
        pixels = np.rint(images * (255 / _BRIGHTEST)).astype(np.uint8)
        whole = Images(pixels, labels.astype(np.int64))
        test = by_class(whole.labels, _TEST_SHARE, seed=_TEST_SEED)
        return {"train": whole.pick(_others(whole, test)), "test": whole.pick(test)}

    def description(self) -> dict[str, Any]:
        return {"source": "scikit-learn, load_digits"}


@dataclass(frozen=True)
class Augmentation:
    """Random shifts and mirror images, as in He et al. 2016 (section 4.2).

    What becomes of an image depends on (seed, epoch, its number) alone: not on its batch, the model
    or the norm, so that runs of a seed see the same pixels.

    Attributes:
        shift: pixels that an image moves at most, in both directions; what comes in is black.
        flip: mirror every other image, left to right.
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
        """Return augmented images; `indices` are their numbers in the training split."""
        if not self.shift and not self.flip:
            return pixels
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
