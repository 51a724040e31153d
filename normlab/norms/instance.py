"""Instance norm and sequence norm, whose statistics come from one sequence."""

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import Affine, Norm, require_divisor
from normlab.norms.moments import Axis, Pool, widen
from normlab.norms.tokens import ALL, Tokens


@dataclass(eq=False, repr=False, kw_only=True)
class InstanceNorm(Norm):
    """`weight (x - mean) / sqrt(var + eps) + bias`, per feature over a sequence's tokens.

    Ulyanov et al. 2016. Only real tokens enter the statistics, and the variance is divided by their
    number, both in training and at inference. So the output of a token depends on later tokens. A
    sequence of one token has no variance, and its output is the bias.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"position"})

    dim: int = field(kw_only=False)
    affine: Affine
    eps: float
    groups: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        super().__init__(self.dim, scale=bool(self.affine), shift=self.affine is True)
        require_divisor(self.groups, self.dim)
        self.pool = Pool(self.pools, groups=self.groups)

    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens = ALL) -> Float[Tensor, "B P D"]:
        (wide,) = widen(x)
        values = self.pool.cut(wide, tokens)
        mean, var, *_ = self.pool.moments(values)
        z = self.formula(values.x, mean, var).reshape(x.shape)
        return self.gain_and_shift(z).to(x.dtype)

    def formula(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Normalize `x` with the mean and variance of its sequence."""
        return (x - mean) * (var + self.eps).rsqrt()


class SequenceNorm(InstanceNorm):
    """`weight (x - mean) / sqrt(var + eps) + bias`, over all features of a sequence's real tokens.

    On images, Wu and He 2018 call this layer norm. The formula is `InstanceNorm.formula`.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"position", "feature"})
