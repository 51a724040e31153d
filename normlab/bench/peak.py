"""The machine's own peak: how fast it multiplies matrices of the model's shapes, and no more.

Measured next to the training it is compared with, since other programs and the clock of the
processor move both.
"""

import time
from dataclasses import dataclass

import torch
from torch import nn

from normlab.bench.clock import Clock

_ATTEMPT = 32  # products between two looks at the clock on a GPU, which runs behind


@dataclass(frozen=True)
class ProductShape:
    """A product of [rows, inner] by [inner, columns]."""

    rows: int
    inner: int
    columns: int

    @property
    def flop(self) -> int:
        """Return the multiplications and additions of the product."""
        return 2 * self.rows * self.inner * self.columns


def model_shapes(*, tokens: int, dim: int, ffn_dim: int, vocab: int) -> list[ProductShape]:
    """Return the products of a Transformer: projection, both of the feed-forward layer, output."""
    return [
        ProductShape(tokens, dim, dim),
        ProductShape(tokens, dim, ffn_dim),
        ProductShape(tokens, ffn_dim, dim),
        ProductShape(tokens, dim, vocab),
    ]


def weight_shapes(model: nn.Module, *, rows: int) -> list[ProductShape]:
    """Return the products of any model by its weights, those of a convolution unfolded."""
    weights = [weight for weight in model.parameters() if weight.dim() >= 2]
    sizes = {(weight[0].numel(), len(weight)) for weight in weights}
    return [ProductShape(rows, inner, columns) for inner, columns in sorted(sizes)]


class Peak:
    """Times each shape's product in one precision, by whatever library the run uses."""

    def __init__(self, shapes: list[ProductShape], *, device: torch.device, dtype: torch.dtype):
        self._clock = Clock(device)
        self._batch = _ATTEMPT if device.type == "cuda" else 1
        self._work = [
            (
                shape,
                torch.randn(shape.rows, shape.inner, device=device).to(dtype),
                torch.randn(shape.columns, shape.inner, device=device).to(dtype),
            )
            for shape in shapes
        ]
        self.rates: list[float] = []
        """FLOP a second of the best shape, one value a measurement."""

    @torch.no_grad()
    def measure(self, *, seconds: float = 0.05) -> float:
        """Time every shape for `seconds`, and keep and return the rate of the best."""
        best = max(self._rate(*work, seconds) for work in self._work)
        self.rates.append(best)
        return best

    def _rate(
        self, shape: ProductShape, left: torch.Tensor, right: torch.Tensor, seconds: float
    ) -> float:
        torch.nn.functional.linear(left, right)
        self._clock.restart()
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(self._batch):
                torch.nn.functional.linear(left, right)
            count += self._batch
        return count * shape.flop / self._clock.read().busy
