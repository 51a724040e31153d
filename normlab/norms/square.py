"""The formula of PN-V, PN, MABN and Unified Norm: division by a root mean square over tokens."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import require_divisor
from normlab.norms.moments import Axis, Groups, Moments, Values
from normlab.norms.ramp import Clock, Ramp
from normlab.norms.rms import RMSNorm
from normlab.norms.running import RunningNorm

SquarePadding = Literal["exclude", "include", "forward"]


@dataclass(eq=False, repr=False, kw_only=True)
class SquareNorm(RunningNorm):
    """`x / sqrt(mean_square + eps)`, per feature, with the mean over all tokens of the batch.

    Inference uses the running mean square. No mean is subtracted: in place of the base class's mean
    and variance, a square norm has 0 and the mean square. With `groups`, each group of a token's
    features is first divided by its own root mean square (as in the appendix of the PowerNorm paper
    and in all of its code), so inference is not affine. `padding` chooses the tokens that enter the
    mean: only real tokens (`exclude`), all tokens (`include`), or real tokens in the forward pass
    but all tokens in the gradient's moment, as in published code (`forward`).
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position"})
    once_an_update: ClassVar[bool] = True
    fewest: ClassVar[int] = 1

    padding: SquarePadding
    groups: int | None = field(init=False, default=None)
    warmup_share: float
    warmup_steps: int | None
    running_square: Tensor = field(init=False)
    zero: Tensor = field(init=False)  # takes the place of a mean
    gradient_groups: Groups = field(init=False)  # the groups of values in the gradient's moment

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisor(self.groups or 1, self.dim)
        width = self.dim // (self.groups or 1)
        self.of_group = RMSNorm(width, affine=False, eps=self.eps).normalized
        self.ramps = (Ramp("warmup", self.warmup_share, self.warmup_steps),)
        self.averages = True  # the running square averages over all batches so far
        self.register_buffer("running_square", torch.ones(1, self.dim))
        self.register_buffer("zero", torch.zeros(1, self.dim), persistent=False)

    def prepare(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
        """Divide each group of a token's features by its root mean square, if there are groups."""
        if self.groups is None:
            return x
        return self.of_group(x.unflatten(-1, (self.groups, -1))).flatten(-2)

    def formula(self, x: Tensor, zero: Tensor, mean_square: Tensor) -> Tensor:
        return x * (mean_square + self.eps).rsqrt()

    def moments(self, values: Values) -> Moments:
        self.gradient_groups = Groups(values.axes, values.var_count)
        # PN, MABN and Unified Norm: the mean square is a constant in the backward pass.
        with torch.set_grad_enabled(self.exact_gradient and torch.is_grad_enabled()):
            squares = values.clear(values.x.square())
            mean_square, count = values.mean(squares, values.count, by=self.over_group)
        return Moments(self.zero.to(mean_square).expand_as(mean_square), mean_square, count, count)

    def begin_step(self, clock: Clock) -> None:
        super().begin_step(clock)
        self.averages = not clock.step or clock.step < self.last_steps(clock.total)["warmup"]

    def or_running(self, count: Tensor, mean_square: Tensor) -> Float[Tensor, "1 D"]:
        """Return the batch's mean square, or the running mean square if the batch has no tokens."""
        return torch.where(count > 0, mean_square.to(self.running_square), self.running_square)

    def update(self, moments: Moments, first: int = 0) -> None:
        """Move the running mean square towards the mean square of a batch.

        In the warm-up, it first moves by one over the number of updates, which averages over all
        batches so far, as in the authors' code.
        """
        self.updates.add_(1)
        # in a square norm, `var` is the mean square
        mean_square = self.or_running(moments.count, moments.var)
        if self.averages:
            self.running_square.lerp_(mean_square, self.updates.to(mean_square).reciprocal())
        self.running_square.lerp_(mean_square, self.momentum)

    def running_moments(self) -> tuple[Tensor, Tensor]:
        return self.zero, self.running_square

    def enter(self, rows: slice, zero: Tensor, mean_square: Tensor, share: Tensor) -> None:
        self.running_square[rows].lerp_(mean_square, share)
