"""Labelled rows of measurements, whose features differ in kind and unit."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float32, Int

from normlab.data.bundled import read_bundled
from normlab.data.labelled import Labelled, LabelledSource, stratified_split

_LABELS = {"wine": "wine (13 features)", "cancer": "breast cancer (30 features)"}
_ORIGINS = {"wine": "UCI, Wine", "cancer": "UCI, Breast Cancer Wisconsin (Diagnostic)"}


@dataclass(frozen=True)
class FeatureTable(Labelled):
    """Rows of unscaled features, and their class indices."""

    features: Float32[np.ndarray, "N F"]
    labels: Int[np.ndarray, "N"]

    def checksum(self) -> str:
        """Return the SHA-256 of the features and labels."""
        digest = hashlib.sha256(self.features.astype("<f4").tobytes())
        digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def pick(self, indices: np.ndarray) -> "FeatureTable":
        """Return the rows at `indices`, in that order."""
        return FeatureTable(self.features[indices], self.labels[indices])


class TableSource(LabelledSource[FeatureTable]):
    """A source of labelled rows."""

    unit = "rows"


@dataclass(kw_only=True, eq=False)
class BundledTable(TableSource):
    """The wine or breast cancer data that come with normlab (see `bundled`).

    They come without a split, so a third of each class is the test split, which is the same in
    every run.
    """

    name: Literal["wine", "cancer"]
    valid_size: int
    licence = "CC BY 4.0 (UCI Machine Learning Repository)"

    def __post_init__(self) -> None:
        self.label, self.origin = _LABELS[self.name], _ORIGINS[self.name]
        self.classes = read_bundled(self.name).classes

    def files(self) -> Mapping[str, Path]:
        return {}

    def published(self) -> Mapping[str, FeatureTable]:
        data = read_bundled(self.name)
        test, train = stratified_split(FeatureTable(data.features, data.labels), 1 / 3, seed=1)
        return {"train": train, "test": test}
