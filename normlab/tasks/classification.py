"""Classification with one label per example, scored by loss, accuracy and calibration error."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.data.labelled import Labelled, LabelledSource
from normlab.errors import UserError
from normlab.metrics.counts import mean_scores, unigram_nll
from normlab.records.record import Score
from normlab.tasks.base import Batch, Task
from normlab.tasks.losses import label_smoothed_cross_entropy, log_probabilities

_BINS = 15


@dataclass(frozen=True, kw_only=True)
class LabelledBatch(Batch):
    """Examples with their class indices."""

    labels: Int[Tensor, "B"]


@dataclass(kw_only=True, eq=False)
class Classification(Task):
    """Base class of classification tasks. Batch sizes count examples.

    Attributes:
        source: where the examples come from.
        label_smoothing: share of the target distribution spread over all classes.
    """

    source: LabelledSource[Any]
    label_smoothing: float
    headline = "accuracy"
    padded = False
    sum_shapes: ClassVar[Mapping[str, tuple[int, ...]]] = {"nll": (), "bins": (3, _BINS)}

    def __post_init__(self) -> None:
        if self.batch_size is None:
            raise UserError(
                f"max_tokens={self.max_tokens}: batches are measured in {self.source.unit}, not "
                "tokens; set batch_size"
            )
        if self.length_buckets:
            raise UserError(
                f"task.length_buckets={[*self.length_buckets]}: {self.source.unit} have no length "
                "in tokens; omit it"
            )

    @cached_property
    def splits(self) -> Mapping[str, Labelled]:
        return self.source.splits()

    @abstractmethod
    def logits(self, model: nn.Module, batch: Any) -> Float[Tensor, "B K"]:
        """Return the logits of a batch of examples."""

    def describe(self) -> dict[str, Any]:
        return {
            "label": self.source.label,
            "licence": self.source.licence,
            "unit": self.source.unit,
            "source": self.source.origin,
            "classes": list(self.source.classes),
            "sizes": {split: len(examples) for split, examples in self.splits.items()},
            "checksums": self.checksums(),
            "padding_share": 0.0,
        }

    def checksums(self) -> Mapping[str, Any]:
        return {split: examples.checksum() for split, examples in self.splits.items()}

    def vocabulary(self) -> dict[str, str]:
        return {"classes.json": json.dumps(self.source.classes, indent=1)}

    def losses(self, model: nn.Module, batch: LabelledBatch) -> dict[str, Tensor]:
        logits = self.logits(model, batch)
        return {"loss": label_smoothed_cross_entropy(logits, batch.labels, self.label_smoothing)[0]}

    def score_sums(self, model: nn.Module, batch: LabelledBatch) -> dict[str, Tensor]:
        logits = self.logits(model, batch)
        confidence, predicted = logits.double().softmax(-1).max(-1)
        hits = (predicted == batch.labels).double()
        place = (confidence * _BINS).ceil().long().clamp(1, _BINS) - 1
        count_confidence_hits = torch.stack([torch.ones_like(hits), confidence, hits], dim=1)
        return {
            "nll": -log_probabilities(logits, batch.labels).double(),
            "bins": count_confidence_hits[:, :, None] * F.one_hot(place, _BINS)[:, None],
        }

    def scores(self, sums: Mapping[str, Any]) -> dict[str, Score]:
        """Return the loss without smoothing, the accuracy, and the calibration error.

        The calibration error is the mean distance between confidence and accuracy over 15 bins of
        equal width in confidence, weighted by their counts (Guo et al. 2017, equation 3).
        """
        counts, confidences, hits = np.asarray(sums["bins"])
        total = int(counts.sum())
        apart = float(np.abs(confidences - hits).sum())
        right = float(hits.sum())
        return mean_scores(total, loss=sums["nll"], accuracy=right, calibration_error=apart)

    def baselines(self) -> dict[str, float]:
        classes = np.bincount(self.splits["test"].labels, minlength=len(self.source.classes))
        return {
            "loss": unigram_nll(classes.tolist()) / float(classes.sum()),
            "accuracy": float(classes.max() / classes.sum()),
        }
