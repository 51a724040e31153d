"""DyT, Derf and other bounded functions of each value, and BHyT, which bounds RMS norm's output."""

import math
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import Affine
from normlab.norms.layer import TokenNorm
from normlab.norms.moments import Axis
from normlab.norms.rms import RMSNorm

Compared = Literal["arctan", "isru", "satursin", "expsign", "smoothsign", "relsign", "cubsign"]


Function = Literal["tanh", "erf", "identity", Compared, "linear_clip"]


FUNCTIONS: Mapping[Function, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "erf": torch.erf,
    "identity": lambda x: x,
    # The functions that Derf's repository compares with erf:
    "arctan": lambda x: 2 / math.pi * torch.atan(x),
    "isru": lambda x: x * (x.square() + 1).rsqrt(),
    "satursin": lambda x: torch.sin(x.clamp(-math.pi / 2, math.pi / 2)),
    "expsign": lambda x: -x.sign() * torch.expm1(-x.abs()),
    "smoothsign": lambda x: x / (1 + x.abs()),
    "relsign": lambda x: x / ((x.square() + 1).sqrt() + 1),
    "cubsign": lambda x: x**3 / (x.abs() ** 3 + 1),
    "linear_clip": lambda x: x.clamp(-1, 1),
}


class BoundedMap(TokenNorm):
    """`weight * f(alpha x + shift) + bias` of each value, with a learned scalar `alpha`.

    There are no statistics. f is the function named by `function`: tanh in DyT (Zhu et al. 2025,
    equation 1), and erf with a learned shift in Derf (Chen et al. 2025). With `identity`, which is
    unbounded, the norm is the learned scalar by which both papers multiply the embeddings of
    language models. There, alpha starts at sqrt(D), or at 1 if the model already multiplies its
    embeddings by sqrt(D).

    Args:
        alpha: initial value of `alpha`. For large language models, the authors choose a different
            value for each site.
        shift: initial value of the learned scalar `shift`; None for no shift.
        affine: whether weight and bias are learned; with `scale`, only the weight (LLaMA).
        root_width: whether f is multiplied by sqrt(D). With `isru`, this is DyISRU (Stollenwerk
            2025), `sqrt(D) x / sqrt(b + x^2)` with b = alpha^-2.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset()

    def __init__(
        self,
        dim: int,
        *,
        function: Function,
        alpha: float,
        shift: float | None,
        affine: Affine,
        root_width: bool = False,
    ) -> None:
        super().__init__(dim, affine=affine)
        self.function = FUNCTIONS[function]
        self.scale = dim**0.5 if root_width else None
        self.saturates_at = None if function == "identity" else self.scale or 1.0
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))
        self.shift = None if shift is None else nn.Parameter(torch.tensor(float(shift)))

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        moved = self.alpha.to(x) * x
        y = self.function(moved if self.shift is None else moved + self.shift.to(x))
        return y if self.scale is None else self.scale * y


class BHyT(TokenNorm):
    """`weight tanh(lam x / (kappa sqrt(mean(x^2) + eps)))` with a learned scalar `lam`.

    This is DyT with alpha = lam / kappa, applied to the output of RMS norm (`rms.py`), so the
    argument of tanh does not grow with the residual stream. It is the exact form, `BHyT_Star` in
    the authors' code (Byun et al. 2026). Their faster form approximates the mean square of a
    layer's second norm by the first norm's mean square plus `lam1^2 ||W_V W_O||^2 / (kappa^2 T D)`,
    where T is the configured sequence length. It is not implemented, because a norm has no access
    to another norm's input and to the attention's weights.

    Args:
        lam: initial value of `lam`.
        kappa: a constant that divides `lam`.
        affine: whether the gain is learned; there is no bias.
    """

    def __init__(self, dim: int, *, lam: float, kappa: float, eps: float, affine: Affine) -> None:
        super().__init__(dim, affine=affine)
        self.forgo_shift()
        self.kappa, self.eps, self.saturates_at = kappa, eps, 1.0
        self.lam = nn.Parameter(torch.tensor(float(lam)))
        self.rms_norm = RMSNorm(dim, affine=False, eps=eps).normalized

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        return torch.tanh(self.lam.to(x) / self.kappa * self.rms_norm(x))
