"""The model under inspection: how far its output moves, and which module moves it."""

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha

from normlab.any_model.example import Example, Forward, Overlap, run
from normlab.any_model.float64 import widened
from normlab.any_model.movement import moved
from normlab.any_model.norms import FoundNorm, find_norms
from normlab.errors import UserError

LEAK = 1e-9
"""The largest movement in float64 that can be rounding."""


@dataclass(frozen=True)
class Moved:
    """How far an output moves: in float64 (`wide`) and in the model's dtype (`narrow`).

    `argmax` is the share of positions whose argmax changes, in the model's dtype.
    """

    wide: float
    narrow: float
    argmax: float


@dataclass(eq=False)
class Examination:
    """A model in eval mode with the example to run, and the user's batches, forward and loss.

    Row 0's outputs alone and in its batch are cached; `shape` is that of the whole batch's output.
    """

    model: nn.Module
    example: Example
    batches: Sequence[Any]
    forward: Forward | None = None
    loss: Any = None
    causal: bool | None = None
    shape: Sequence[int] = ()
    _outputs: dict[Any, Tensor] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What is examined: the model's class, size and dtype, and the rows."""
        size = sum(each.numel() for each in self.model.parameters())
        rows, length = self.example.size, self.example.length
        shown = f"{rows} rows" + f" of up to {length:,} positions" * bool(length)
        return f"{type(self.model).__name__}, {size:,} parameters in {self.dtype}; {shown}"

    @property
    def dtype(self) -> str:
        """The dtype of most weights: `bfloat16`."""
        sizes: Counter[torch.dtype] = Counter()
        for weight in self.model.parameters():
            sizes[weight.dtype] += weight.numel()
        return str(sizes.most_common(1)[0][0] if sizes else torch.get_default_dtype())[6:]

    @property
    def blind(self) -> bool:
        """Whether the device has no float64."""
        return self.example.device.type == "mps"

    @property
    def fast_paths(self) -> tuple[bool, ...]:
        """Settings of torch's fused encoder layer to try: off, and on if the model may use it."""
        fused = (nn.TransformerEncoderLayer, nn.MultiheadAttention)
        has = any(isinstance(module, fused) for module in self.model.modules())
        return (False, True) if has and mha.get_fastpath_enabled() else (False,)

    @cached_property
    def alone(self) -> Example:
        """Row 0 without the other rows."""
        return self.example.alone()

    @cached_property
    def norms(self) -> list[FoundNorm]:
        """All norms that a forward pass calls."""
        return find_norms(self.model, self.example, self.forward)

    def output(self, variant: Example, *, wide: bool = False, fast: bool = False) -> Tensor:
        """Return row 0's output for a variant, at the real positions of row 0 alone.

        Raises ModelFailed if the model fails, UserError if its output has other axes.
        """
        key = variant, wide, fast
        if key in self._outputs:
            return self._outputs[key]
        former = mha.get_fastpath_enabled()
        try:
            mha.set_fastpath_enabled(fast)
            with torch.no_grad(), widened() if wide else nullcontext():
                y = run(self.model, variant, self.forward)
        finally:
            mha.set_fastpath_enabled(former)
        if variant is self.example:
            self.shape = y.shape
        if variant is not self.alone:
            y = variant.overlap(y, self.output(self.alone, wide=wide, fast=fast))[0].clone()
        if variant in (self.alone, self.example):
            self._outputs[key] = y
        return y

    def moved(self, variant: Example, base: Example | None = None) -> Moved:
        """Return how far a variant's output is from a base's, by default from row 0's alone.

        With several fast paths, the largest movement counts.
        """

        def outputs(wide: bool, fast: bool) -> tuple[Tensor, Tensor]:
            y0 = self.output(base or self.alone, wide=wide, fast=fast)
            return self.output(variant, wide=wide, fast=fast), variant.overlap(y0, y0)[0]

        found: list[Moved] = []
        for fast in self.fast_paths:
            y, y0 = outputs(False, fast)
            narrow = moved(y, y0)
            wide = narrow if self.blind else moved(*outputs(True, fast))
            found.append(Moved(wide, narrow, _argmax(y, y0)))
        return max(found, key=lambda each: each.wide)

    def rounding(self) -> Moved:
        """Return how far the shortest row alone is from the same row in its batch.

        Only the model's dtype is used: without leaks, this is rounding. Raises UserError if the
        row is too short for the model, or the output has no batch axis.
        """
        example, last = self.example, self.example.size - 1
        alone = self.output(self.alone).shape
        with torch.no_grad():
            batch = run(self.model, example, self.forward)
            y0 = run(self.model, example.alone(last), self.forward)
        axes = [n for n, size in enumerate(alone) if size != batch.shape[n]]
        if not axes:
            raise UserError("the output has no batch axis")
        y, y0 = Overlap(example.side)(batch.narrow(axes[0], last, 1), y0)
        return Moved(0.0, moved(y, y0), _argmax(y, y0))


def _argmax(y: Tensor, y0: Tensor) -> float:
    return float((y.argmax(-1) != y0.argmax(-1)).double().mean())
