"""Mix-LN: the first layers of a stack are post-norm, the others pre-norm.

Source: Li et al. 2025 ("Mix-LN: Unleashing the Power of Deeper Layers by Combining Pre-LN and
Post-LN"). In the authors' scripts a quarter of the layers are post-norm: 3 of 12 and 6 of 24.
"""

from dataclasses import dataclass

from normlab.placements.base import Norms, Place, Placement, Residual
from normlab.placements.post import PostResidual
from normlab.placements.pre import PreResidual


@dataclass(eq=False, kw_only=True)
class MixLN(Placement):
    """Mix-LN placement, in which a fraction `share` of the layers is post-norm.

    The number of post-norm layers is rounded down, but is at least one. A share of 0 is pre-norm; a
    share of 1 is post-norm with a closing norm.
    """

    drawing = """
        x --> post-norm layers --> pre-norm layers --> norm
              the first share       the rest
    """

    share: float

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        post_layers = max(1, int(self.share * place.layers)) if self.share else 0
        kind = PostResidual if place.layer < post_layers else PreResidual
        return kind(norms.required(place.path, dim), self.dropout)
