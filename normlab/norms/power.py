"""PowerNorm (Shen et al. 2020): PN-V, and PN (algorithm 2)."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from normlab.norms.base import during
from normlab.norms.gradient import GradientNorm
from normlab.norms.square import SquareNorm


@dataclass(eq=False, repr=False, kw_only=True)
class PowerNormV(SquareNorm):
    """PN-V (Shen et al. 2020): `weight x / sqrt(mean(x^2) + eps) + bias`, with an exact gradient.

    The mean square is the batch's in training, and the running one at inference. The division is
    `SquareNorm.formula` (`square.py`). The authors published no code for PN-V. Here,
    `padding=forward` is the same as `exclude`.
    """

    groups: int | None


@dataclass(eq=False, repr=False, kw_only=True)
class PowerNorm(GradientNorm):
    """PN: `weight x / sqrt(psi^2 + eps) + bias`, with its own gradient (algorithm 2).

        before       x = token / sqrt(mean(token^2) + eps), in each of `groups` groups of features;
                     `norm=pn` has one group, and with `groups=null` x is the token itself
        training     z = x / sqrt(psi^2 + eps):
                     psi^2 is the batch's mean square in the warm-up, then the running one from
                     before the batch
        backward     dz' = dz - backward_momentum nu z,  dx = dz' / sqrt(s + eps);
                     then nu += mean(dz' z); nu starts at 0
        inference    z = x / sqrt(psi^2 + eps): psi^2 is the running mean square

    s, psi^2 and nu are constants in the backward pass. With `backward=code`, s is the batch's mean
    square at every step, as in the authors' code; with `backward=paper`, it is psi^2. The division
    is `SquareNorm.formula` (`square.py`), dz' is `Projection` (`gradient.py`), and
    `RunningNorm.forward` (`running.py`) chooses between training and inference.
    """

    groups: int | None
    backward_momentum: float
    backward: Literal["code", "paper"]
    gradient_moment: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("gradient_moment", torch.zeros(1, self.dim))

    def training_formula(self, x: Tensor, zero: Tensor, mean_square: Tensor) -> Tensor:
        """Divide by the batch's RMS in the warm-up and by the running RMS later, and project."""
        by_batch = during(self, "warmup")
        square = mean_square if by_batch else self.running_square.to(x)
        z = self.formula(x, zero, square)
        if not torch.is_grad_enabled():
            return z
        factor = None
        if not by_batch and self.backward == "code":
            # In the backward pass, this turns the factor 1 / psi of `formula` into 1 / sqrt(s).
            factor = ((square + self.eps) / (mean_square + self.eps)).sqrt()
        nu = self.backward_momentum * self.gradient_moment.to(z)
        return self.project(z, fixed=nu, share=None, factor=factor)

    def enter_gradient(self, moment: Tensor, counts: Tensor) -> None:
        self.gradient_moment.add_(moment)  # 0 if there are no tokens
