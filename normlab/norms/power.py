"""PowerNorm (Shen et al. 2020, algorithm 2)."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from normlab.norms.base import during
from normlab.norms.square import GradientNorm


@dataclass(eq=False, repr=False, kw_only=True)
class PowerNorm(GradientNorm):
    """PN: divides by the batch's root mean square in the warm-up, then by the running one.

    z = u / sqrt(square + eps), with the running square from before the batch. In the backward pass,
    with g the gradient of z, nu a running moment that starts at 0, and means over tokens:

        g' = g - backward_momentum nu z        nu += mean(g' z)        du = g' / sqrt(s + eps)

    `backward` chooses s: with `code` it is the batch's square at every step, as in the authors'
    code; with `paper` it is the square used in the forward pass.
    """

    groups: int | None
    backward_momentum: float
    backward: Literal["code", "paper"]
    gradient_moment: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("gradient_moment", torch.zeros(1, self.dim))

    def training_formula(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Divide by the batch's square in the warm-up, then by the running one; project nu out."""
        by_batch = during(self, "warmup")
        square = var if by_batch else self.running_square.to(x)
        z = self.formula(x, mean, square)
        if not torch.is_grad_enabled():
            return z
        factor = None
        if not by_batch and self.backward == "code":
            factor = ((square + self.eps) / (var + self.eps)).sqrt()
        nu = self.backward_momentum * self.gradient_moment.to(z)
        return self.project(z, fixed=nu, share=None, factor=factor)

    def enter_gradient(self, moment: Tensor, counts: Tensor) -> None:
        self.gradient_moment.add_(moment)  # 0 if nothing counts
