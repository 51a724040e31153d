"""Labelled examples, and the base class of sources of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

import numpy as np
from jaxtyping import Int

from normlab.data.source import DataSource
from normlab.errors import UserError

_Own = TypeVar("_Own", bound="Labelled")


class Labelled(ABC):
    """Examples that belong to one class each. `labels` are the class indices, int64 [N]."""

    labels: Int[np.ndarray, "N"]

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def checksum(self) -> str:
        """Return the SHA-256 of the examples and labels."""

    @abstractmethod
    def pick(self: _Own, indices: np.ndarray) -> _Own:
        """Return the examples at `indices`, in that order."""


Examples = TypeVar("Examples", bound=Labelled)


class LabelledSource(DataSource, Generic[Examples]):
    """A source of labelled examples.

    Attributes:
        label: the name of the data in result tables, such as `CIFAR-10 (JPEG)`.
        origin: where the data come from, for a run's record. Some sources set `label` and `origin`
            only when `published` is called.
        unit: the plural noun for the examples, such as `pictures`. It is also the unit of a run's
            budget.
        classes: the names of the classes, in the order of their indices.
        valid_size: the approximate number of published training examples to hold out for
            validation. The same fraction of each class is taken and rounded, so 200 holds out 199
            of the digits.
        train_size: the approximate number of the remaining examples to train on, with the same
            fraction of each class; None for all. Each size is drawn separately, so a smaller set is
            not a subset of a larger one.
    """

    label: str
    origin: str
    licence: ClassVar[str]
    unit: ClassVar[str]
    classes: tuple[str, ...]
    valid_size: int
    train_size: int | None = None

    @abstractmethod
    def published(self) -> Mapping[str, Examples]:
        """Return the published splits, `train` and `test`.

        Raises UserError if the data are damaged or missing; the error says where to get them.
        """

    def splits(self) -> dict[str, Examples]:
        """Return `train`, `valid` and `test`, with `valid` held out of the published `train`.

        Raises UserError if `valid_size` or `train_size` is out of range or rounds to no examples.
        """
        published = self.published()
        train = published["train"]
        if not 0 < self.valid_size <= len(train) - len(self.classes):
            raise UserError(
                f"task.source.valid_size={self.valid_size}: there are {len(train)} training "
                f"{self.unit}; hold out at least 1, and keep at least 1 per class for training"
            )
        valid, train = stratified_split(train, self.valid_size / len(train), seed=0)
        self._check_size("valid_size", valid)
        if self.train_size is not None:
            if self.train_size > len(train):
                raise UserError(f"task.source.train_size={self.train_size} exceeds {len(train)}")
            train, _ = stratified_split(train, self.train_size / len(train), seed=self.train_size)
            self._check_size("train_size", train)
        return {"train": train, "valid": valid, "test": published["test"]}

    def _check_size(self, key: str, examples: Examples) -> None:
        """Raise UserError if a size is so small that no example of any class is taken."""
        if not len(examples):
            raise UserError(
                f"task.source.{key}={getattr(self, key)}: the same fraction of each of the "
                f"{len(self.classes)} classes is taken, which rounds to no {self.unit}; set it to "
                f"{len(self.classes)} or more"
            )


def stratified_split(examples: Examples, share: float, *, seed: int) -> tuple[Examples, Examples]:
    """Split examples at random into a fraction `share` of each class, and the rest."""
    rng = np.random.default_rng([seed, len(examples)])
    picked = [
        rng.permutation(members)[: round(share * len(members))]
        for members in (np.flatnonzero(examples.labels == x) for x in np.unique(examples.labels))
    ]
    chosen = np.sort(np.concatenate(picked))
    rest = np.setdiff1d(np.arange(len(examples)), chosen)
    return examples.pick(chosen), examples.pick(rest)
