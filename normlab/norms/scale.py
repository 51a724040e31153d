"""ScaleNorm: a token's direction, and one learned length (Nguyen and Salazar 2019)."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import Axis, Norm, Stream
from normlab.norms.moments import widen


class ScaleNorm(Norm):
    """`g x / ||x||` with one learned scalar `g`, at first sqrt(D) (equation 2).

    `eps` bounds the length from below.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"feature"})

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__(dim, scale=False, shift=False)
        self.eps = eps
        self.g = nn.Parameter(torch.tensor(dim**0.5))

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return each token at the length `g`."""
        wide, g = widen(x, self.g)
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        return (wide * (g / length.clamp(min=self.eps))).to(x.dtype)
