"""Instance norm, sequence norm and group norm of a sample: statistics of one sequence."""

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from normlab.norms.kernels import standardize
from normlab.norms.layer import TokenNorm
from normlab.norms.pool import ALL, Axis, Pool, Stream


@dataclass(eq=False, repr=False, kw_only=True)
class InstanceNorm(TokenNorm):
    """Normalizes each feature over the real tokens of its sequence (Ulyanov et al. 2016).

    Outputs depend on later tokens. A single token has no variance, so its output is the bias.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"position"})

    eps: float
    groups: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pool = Pool(self.pools, groups=self.groups)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        groups = self.pool.cut(x, stream)
        weight, bias = self.weight.to(groups.x), self.bias.to(groups.x)
        y, _ = standardize(groups, weight, bias, self.pool, self.eps)
        return self.pool.join(y, groups, like=x)


class SequenceNorm(InstanceNorm):
    """Normalizes all features of all real tokens of a sequence together."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"position", "feature"})


@dataclass(eq=False, repr=False, kw_only=True)
class SampleGroupNorm(SequenceNorm):
    """Normalizes groups of neighboring features over a sample's positions (Wu and He 2018, eq. 7).

    With one group it is `SequenceNorm`; with as many groups as features it is instance norm.
    """

    groups: int
