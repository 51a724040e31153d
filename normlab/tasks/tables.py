"""Classification of rows of measurements, which are fed to the model unscaled."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from normlab.data.tables import FeatureTable, TableSource
from normlab.models.base import Features
from normlab.tasks.base import Draw
from normlab.tasks.classification import Classification, LabelledBatch


@dataclass(frozen=True, kw_only=True)
class TableBatch(LabelledBatch):
    """Rows of features and their class indices as tensors."""

    features: Float32[Tensor, "B F"]


@dataclass(kw_only=True, eq=False)
class TableClassification(Classification):
    """Classification of rows. Batch sizes count rows, each of which is one position.

    Attributes:
        source: where the rows come from.
    """

    source: TableSource

    @cached_property
    def splits(self) -> Mapping[str, FeatureTable]:
        return self.source.splits()

    def spec(self) -> Features:
        return Features(self.splits["train"].features.shape[1], len(self.source.classes))

    def lengths(self, split: str, draw: Draw | None = None) -> np.ndarray:
        return np.ones((len(self.split(split)), 1), np.int64)

    def collate(
        self, split: str, indices: np.ndarray, draw: Draw | None = None, *, padding: float = 0.0
    ) -> TableBatch:
        chosen = self.split(split).pick(indices)
        count = len(chosen)
        return TableBatch(
            features=torch.from_numpy(chosen.features),
            labels=torch.from_numpy(chosen.labels),
            counts={"loss": count},
            tokens=count,
            positions=count,
        )

    def logits(self, model: nn.Module, batch: TableBatch) -> Float[Tensor, "B K"]:
        return model(batch.features.to(next(model.parameters()).dtype))
