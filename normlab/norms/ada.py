"""AdaNorm: layer norm scaled by a function of its own output (Xu et al. 2019)."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import Axis, Norm, Stream
from normlab.norms.moments import widen


class AdaNorm(Norm):
    """`C (1 - k n) n` with `n` the normalized token (equation 10), and nothing learned.

    No gradient flows through the factor `1 - k n`. As in the authors' code `n` is the token less
    its mean, over `sd + eps` with the n - 1 standard deviation.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"feature"})
    exact_gradient: ClassVar[bool] = False

    def __init__(self, dim: int, *, eps: float, scale: float, k: float) -> None:
        super().__init__(dim, scale=False, shift=False)
        self.eps = eps
        self.scale = scale
        self.k = k

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return each token normalized, large values of either sign made smaller or larger."""
        (wide,) = widen(x)
        normalized = (wide - wide.mean(-1, keepdim=True)) / (wide.std(-1, keepdim=True) + self.eps)
        return (self.scale * (1 - self.k * normalized.detach()) * normalized).to(x.dtype)
