"""Bounded maps in place of a norm: each value by itself, no statistics.

DyT (Zhu et al. 2025, equation 1) takes tanh, Derf (Chen et al. 2025) erf with a learned shift. The
other maps are some of those that Derf's repository compares it with, and `identity`: that bounds
nothing, and is for the learned scalar that both have on the embeddings of language models. It
starts at sqrt(D), or at 1 where the model multiplies embeddings by sqrt(D) itself.
"""

import math
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.local import TokenNorm
from normlab.norms.pool import Axis

Function = Literal[
    "tanh",
    "erf",
    "arctan",
    "isru",
    "satursin",
    "expsign",
    "smoothsign",
    "relsign",
    "cubsign",
    "linear_clip",
    "identity",
]
FUNCTIONS: Mapping[Function, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "erf": torch.erf,
    "arctan": lambda x: 2 / math.pi * torch.atan(x),
    "isru": lambda x: x * (x.square() + 1).rsqrt(),
    "satursin": lambda x: torch.sin(x.clamp(-math.pi / 2, math.pi / 2)),
    "expsign": lambda x: -x.sign() * torch.expm1(-x.abs()),
    "smoothsign": lambda x: x / (1 + x.abs()),
    "relsign": lambda x: x / ((x.square() + 1).sqrt() + 1),
    "cubsign": lambda x: x**3 / (x.abs() ** 3 + 1),
    "linear_clip": lambda x: x.clamp(-1, 1),
    "identity": lambda x: x,
}


class BoundedMap(TokenNorm):
    """`weight * f(alpha x + shift) + bias` with one learned scalar `alpha`.

    Args:
        alpha: first value of the scalar. The authors set it by place in large language models.
        shift: first value of a learned scalar that is added; None for none.
        affine: whether the weight and the bias are learned; `scale` has a weight and no bias, as
            the authors' LLaMA.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset()

    def __init__(
        self,
        dim: int,
        *,
        function: Function,
        alpha: float,
        shift: float | None,
        affine: bool | Literal["scale"],
    ) -> None:
        super().__init__(dim, affine=bool(affine))
        if affine == "scale":
            self.forgo_shift()
        self.function: Function = function
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))
        self.shift = None if shift is None else nn.Parameter(torch.tensor(float(shift)))

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        moved = self.alpha.to(x) * x
        return FUNCTIONS[self.function](moved if self.shift is None else moved + self.shift.to(x))
