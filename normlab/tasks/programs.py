"""Models as functions of tensors alone, for `normlab export`."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from normlab.norms.base import Stream

_TEXT = ("size", "source")
_TARGET = ("size", "target")


class Program(nn.Module):
    """A model that is called with fields of a batch, in the order of `axes`.

    `axes` names, by field, the axes that may have any size; those of one name have the same.
    """

    axes: ClassVar[Mapping[str, Sequence[str]]]

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def given(self, batch: Any) -> tuple[Tensor, ...]:
        """Return the fields of a batch that it is called with."""
        return tuple(getattr(batch, name) for name in self.axes)


class Translates(Program):
    """Logits of the next target token: source ids and valid, target ids and valid."""

    axes: ClassVar[Mapping[str, Sequence[str]]] = {
        "source": _TEXT,
        "source_valid": _TEXT,
        "tgt_in": _TARGET,
        "tgt_valid": _TARGET,
    }

    def forward(
        self, source: Tensor, source_valid: Tensor, target: Tensor, target_valid: Tensor
    ) -> Tensor:
        """Return `[B, P, V]`."""
        stream = self.model(source, Stream(source_valid), target, Stream(target_valid))
        return self.model.project(stream)


class Continues(Program):
    """Logits of the next token: ids and valid."""

    axes: ClassVar[Mapping[str, Sequence[str]]] = {"ids": _TEXT, "valid": _TEXT}

    def forward(self, ids: Tensor, valid: Tensor) -> Tensor:
        """Return `[B, P, V]`."""
        return self.model.project(self.model(ids, Stream(valid)))


class Encodes(Program):
    """The stream after all layers: ids, valid, segments."""

    axes: ClassVar[Mapping[str, Sequence[str]]] = {"ids": _TEXT, "valid": _TEXT, "segments": _TEXT}

    def forward(self, ids: Tensor, valid: Tensor, segments: Tensor) -> Tensor:
        """Return `[B, P, D]`."""
        return self.model(ids, Stream(valid), segments)


class Classifies(Program):
    """Logits of the classes: pixels as bytes, which it standardizes as in training."""

    axes: ClassVar[Mapping[str, Sequence[str]]] = {"pixels": ("size",)}
    mean: Tensor
    deviation: Tensor

    def __init__(self, model: Any, mean: Tensor, deviation: Tensor) -> None:
        super().__init__(model)
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return `[B, K]`."""
        return self.model(standardized(pixels, self.mean, self.deviation))


def standardized(pixels: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Return pixels of bytes as numbers, by mean and deviation of each channel."""
    return (pixels.to(mean.dtype) - mean) / deviation
