"""Images with a class each: the contract of a source, random variation, scikit-learn's digits."""

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
class Pictures:
    """Pictures of one size, values 0 to 255, and the number of the class of each."""

    pixels: UInt8[np.ndarray, "N H W C"]
    labels: Int[np.ndarray, "N"]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.labels)

    def checksum(self) -> str:
        """Return the SHA-256 of pixels and labels."""
        digest = hashlib.sha256(self.pixels.tobytes())
        digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def pick(self, indices: np.ndarray) -> "Pictures":
        """Return some of them, in that order."""
        return Pictures(self.pixels[indices], self.labels[indices])


class PictureSource(ABC):
    """Where pictures come from.

    Attributes:
        classes: the names of the classes, in the order of their numbers.
        valid_size: how many of the published training pictures are held out for validation.
    """

    classes: tuple[str, ...]
    valid_size: int
    licence: ClassVar[str]

    @abstractmethod
    def published(self) -> Mapping[str, Pictures]:
        """Return the published splits, `train` and `test`.

        Raises ValueError saying where the pictures come from, or naming a file that is damaged.
        """

    @property
    @abstractmethod
    def label(self) -> str:
        """What results on these pictures may be called, such as `CIFAR-10 (JPEG)`."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Return what the record says of them beside sizes and checksums."""

    def splits(self) -> dict[str, Pictures]:
        """Return `train`, `valid` and `test`; `valid` is drawn from the training pictures.

        Each class has its share of `valid`. Raises ValueError where that leaves a split empty, and
        for a picture of no class.
        """
        published = self.published()
        for split, pictures in published.items():
            strange = (pictures.labels < 0) | (pictures.labels >= len(self.classes))
            if strange.any():
                number = int(strange.argmax())
                raise ValueError(
                    f"{self.label}: picture {number + 1} of {split} is of class "
                    f"{pictures.labels[number]}, and classes are 0 to {len(self.classes) - 1}: its "
                    "source is damaged; get it again"
                )
        train = published["train"]
        if not 0 < self.valid_size <= len(train) - len(self.classes):
            raise ValueError(
                f"task.source.valid_size={self.valid_size}: there are {len(train)} training "
                f"pictures of {len(self.classes)} classes; hold out at least one, and leave some"
            )
        share = self.valid_size / len(train)
        chosen = by_class(train.labels, share, seed=_HELD_OUT_SEED)
        held_out = np.zeros(len(train), dtype=bool)
        held_out[chosen] = True
        return {
            "train": train.pick(np.flatnonzero(~held_out)),
            "valid": train.pick(np.flatnonzero(held_out)),
            "test": published["test"],
        }


def by_class(labels: Int[np.ndarray, "N"], share: float, *, seed: int) -> Int[np.ndarray, "K"]:
    """Return the indices of a share of the pictures of each class, ascending, drawn by a seed."""
    rng = np.random.default_rng([seed, len(labels)])
    picked = [
        rng.permutation(members)[: round(share * len(members))]
        for members in (np.flatnonzero(labels == name) for name in np.unique(labels))
    ]
    return np.sort(np.concatenate(picked))


class Digits(PictureSource):
    """The handwritten digits that come with scikit-learn: 8 by 8 pixels, ten classes, no download.

    1,797 images of the test set of Alpaydin and Kaynak 1998 ("Optical Recognition of Handwritten
    Digits", UCI), values 0 to 16. The publisher has no split into train and test here, so one is
    drawn: a sixth of each class is the test, the same in every run.
    """

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


@dataclass(frozen=True)
class Augmentation:
    """Random shifts and mirror images, as in He et al. 2016 (section 4.2).

    What becomes of an image depends on (seed, epoch, its number) alone: not on its batch, the model
    or the norm, so that runs of a seed see the same pixels.

    Attributes:
        shift: pixels that a picture moves at most, in both directions; what comes in is black.
        flip: mirror every other picture, left to right.
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
        """Return varied pictures; `indices` are their numbers in the training split."""
        if not self.shift and not self.flip:
            return pixels
        _, height, width, _ = pixels.shape
        drawn = dice("pictures", seed=seed, epoch=epoch, examples=indices, width=1, count=3)[:, 0]
        corners = (drawn[:, :2] * (2 * self.shift + 1)).astype(np.int64).tolist()
        mirrored = (drawn[:, 2] < 0.5).tolist() if self.flip else [False] * len(pixels)
        room = ((0, 0), (self.shift, self.shift), (self.shift, self.shift), (0, 0))
        varied = np.empty_like(pixels)
        each = zip(varied, np.pad(pixels, room), corners, mirrored, strict=True)
        for picture, wide, (down, right), mirror in each:
            cut = wide[down : down + height, right : right + width]
            picture[:] = cut[:, ::-1] if mirror else cut
        return varied
