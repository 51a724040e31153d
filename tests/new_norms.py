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
from normlab.norms.pool import Moments, widen


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

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` over the running root mean square."""
        if self.regime != "running":
            real = stream.real(x)[..., None].to(x)
            count = real.sum((0, 1))[None]
            mean_square = (x.square() * real).sum((0, 1)) / count
            found = mean_square.detach()
            self.see(Moments(torch.zeros_like(found), found, count, count))
            if self.training and x.requires_grad:
                step, total = self.clock
                self.extra_loss = self.price * step / (total or step or 1) * mean_square.sum()
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
