"""Probes of the residual stream's rank and of the saturation of bounded norms.

`rank` measures the residual stream (or the first of several streams) after each connection. Let l
be the eigenvalues of the covariance of the states of N real tokens, and s = sqrt(l). Then

    participation  (sum l)^2 / sum l^2
    effective      exp(-sum p log p), p = s / sum s (Roy and Vetterli 2007; some authors use l)

Both are 1 if the states vary along one line, and D if they vary equally along D axes. A small N
biases them downwards (for N = 4096 and such states with D = 64, they are 63.0 and 63.9), so a batch
needs N >= `tokens` x D.

`saturation` measures norms whose function f has the bound 1, such as DyT, Derf, ISRU and BHyT.
`share` is the share of values with |f| above `threshold`, before any gain or bias. In DyT, the
default threshold, tanh(2), means |alpha x| > 2, where the slope of tanh is at most 0.071.
"""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.layer import TokenNorm
from normlab.norms.moments import widen
from normlab.probes.activations import first_stream
from normlab.probes.base import Probe, Values
from normlab.probes.sites import ModuleCall


def ranks(x: Float[Tensor, "N D"]) -> dict[str, Tensor]:
    """Return `participation` and `effective` for the states of N tokens, computed in float64."""
    centered = x.double() - x.double().mean(0)
    squares = torch.linalg.eigvalsh(centered.mT @ centered).clamp(min=0)
    shares = squares.sqrt() / squares.sqrt().sum()
    return {
        "participation": squares.sum().square() / squares.square().sum(),
        "effective": torch.special.entr(shares).sum().exp(),
    }


class Rank(Probe):
    """Measures the rank of the residual stream at each depth."""

    kinds = ("residual",)

    def __init__(self, *, every: int, tokens: int) -> None:
        """Measure only batches with at least `tokens` real tokens per feature."""
        super().__init__(every=every)
        self._tokens = tokens

    def measure_call(self, call: ModuleCall) -> Values:
        x, real = first_stream(call)
        states = x[real]
        return ranks(states) if len(states) >= self._tokens * x.shape[-1] else {}


class Saturation(Probe):
    """Measures the share of saturated values in each bounded norm."""

    kinds = ("norm",)
    absent = "no norm is a bounded function, such as dyt"

    def __init__(self, *, every: int, threshold: float) -> None:
        super().__init__(every=every)
        self._threshold = threshold

    def applies(self, module: nn.Module) -> bool:
        return isinstance(module, TokenNorm) and module.saturates_at is not None

    def measure_call(self, call: ModuleCall) -> Values:
        x, real = call.input
        norm = cast("TokenNorm", call.module)
        assert norm.saturates_at is not None
        near = norm.formula(*widen(x)).abs() > self._threshold * norm.saturates_at
        share = (near * real[..., None]).sum() / (real.sum() * x.shape[-1])
        return {"share": share}
