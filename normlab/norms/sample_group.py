"""Group norm of pictures: groups of features, over all positions of a sample."""

from normlab.norms.local import SequenceNorm, dividing
from normlab.norms.moments import Pooling


class SampleGroupNorm(SequenceNorm):
    """Each group of neighbouring features over a sample's positions (Wu and He 2018, equation 7).

    With one group it is the layer norm of that paper, `SequenceNorm`; with as many groups as
    features it is instance norm. `GroupNorm` takes the groups of one position alone.

    Raises:
        ValueError: `groups` does not divide `dim`.
    """

    def __init__(self, dim: int, *, eps: float, affine: bool, groups: int) -> None:
        super().__init__(dim, eps=eps, affine=affine)
        self.groups = dividing("gn_sample", groups, dim)
        self.pooling = Pooling(self.pools, groups=groups)
