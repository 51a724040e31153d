"""Group norm: of each token separately or, as on images, over the positions of a sample."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import require_divisor
from normlab.norms.instance import SequenceNorm
from normlab.norms.layer import LayerNorm, TokenNorm
from normlab.norms.rms import RMSNorm


@dataclass(eq=False, repr=False, kw_only=True)
class GroupNorm(TokenNorm):
    """`weight (x - mean) / sqrt(var + eps) + bias`, per group of a token's features (Wu, He 2018).

    The features of a token form `groups` contiguous groups, to each of which `LayerNorm.formula`
    (`layer.py`) is applied or, without `center`, `RMSNorm.formula` (`rms.py`), as in PowerNorm's
    group scaling.
    """

    eps: float
    groups: int
    center: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisor(self.groups, self.dim)
        kind, width = LayerNorm if self.center else RMSNorm, self.dim // self.groups
        self.of_group = kind(width, affine=False, eps=self.eps).normalized

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        return self.of_group(x.unflatten(-1, (self.groups, -1))).flatten(-2)


@dataclass(eq=False, repr=False, kw_only=True)
class SampleGroupNorm(SequenceNorm):
    """`weight (x - mean) / sqrt(var + eps) + bias`, over a group of features of a whole sample.

    This is group norm of images (Wu and He 2018, equation 7), with contiguous groups. With one
    group it is `SequenceNorm`; with as many groups as features it is instance norm, whose
    `InstanceNorm.formula` (`instance.py`) it uses.
    """

    groups: int
