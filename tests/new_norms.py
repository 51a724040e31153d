"""Norms that nobody has heard of, as text: a file and a config each. The first is the how-to's."""

from tests.docs.pages import ROOT, fenced

_PAGE = (ROOT / "docs" / "howto" / "own_norm.md").read_text()
(NEW_NORM,), (NEW_CONFIG,) = fenced(_PAGE, "python"), fenced(_PAGE, "yaml")


NEW_STATEFUL_NORM = '''
"""Divide by a running peak, by a gradient of its own and at a price."""

from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import Axis, RunningNorm, Stream
from normlab.norms.moments import Moments, widen


class RunningPeak(RunningNorm):
    """Each feature over a running mean square, which the batch enters first."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position"})
    exact_gradient: ClassVar[bool] = False

    def __init__(self, dim: int, *, price: float) -> None:
        super().__init__(
            dim, eps=1e-5, affine=True, eval_stats="running", sync=True, momentum=0.1
        )
        self.price = price
        self.keep("square", torch.ones(1, dim))
        self.keep("gradient", torch.zeros(1, dim))
        self.term: Tensor | None = None
        self.share = 0.0

    def begin_step(self, step: int, total: int | None) -> None:
        """Know how much of the run is over."""
        self.share = step / (total or step)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` over the running root mean square."""
        if self.by_batch:
            real = stream.real(x)[..., None].to(x)
            count = real.sum((0, 1), keepdim=True)
            mean_square = (x.square() * real).sum((0, 1), keepdim=True) / count
            found = mean_square.detach()
            self.observe(Moments(torch.zeros_like(found), found, count, count))
            if self.training and x.requires_grad:
                self.term = self.price * self.share * mean_square.sum()
        wide, square, weight, bias = widen(x, self.square, self.weight, self.bias)
        z = wide * (square.clone() + self.eps).rsqrt()
        if z.requires_grad and self.training:
            z.register_hook(partial(self.through, real=stream.real(z)[..., None].to(z)))
        return (z * weight + bias).to(x.dtype)

    def through(self, grad: Tensor, real: Tensor) -> Tensor:
        """Take the running mean of the gradient out of it."""
        before = self.gradient.clone()
        mean = (grad * real).sum((0, 1)) / real.sum()
        self.gradient.lerp_(mean[None].to(before), 0.1)
        return (grad - before) * real

    def penalty(self) -> Tensor | None:
        """Return the price of a large square."""
        term, self.term = self.term, None
        return term

    def running_moments(self) -> tuple[Tensor, Tensor]:
        """Return the running mean square as variance."""
        return torch.zeros_like(self.square), self.square

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        """Move the running mean square by a share."""
        self.square[rows].lerp_(var, share)
'''
NEW_STATEFUL_CONFIG = """# normlab train norm=running_peak
# Each feature over a running mean square.
_target_: normlab.norms.running_peak.RunningPeak
price: 1.0e-3
"""
