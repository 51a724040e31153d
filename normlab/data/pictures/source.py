"""The contract of a source of pictures, and the splits that a task trains and is scored on."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int, UInt8

_HELD_OUT_SEED = 0  # the valid split is the same in every run


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
