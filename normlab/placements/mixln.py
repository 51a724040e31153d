"""Mix-LN: the first layers of a stack are post-norm, the others pre-norm.

    y = norm(x + f(x))    in the first layers
    y = x + f(norm(x))    in the others

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout.
    closing norm: one, as in pre-norm.

Source: Li et al. 2025 ("Mix-LN: Unleashing the Power of Deeper Layers by Combining Pre-LN and
Post-LN"). In the authors' scripts a quarter of the layers are post-norm: 3 of 12 and 6 of 24.
"""

from dataclasses import dataclass

from normlab.placements.base import Norms, Place, Placement, Residual
from normlab.placements.post import PostResidual
from normlab.placements.pre import PreResidual


@dataclass(eq=False, kw_only=True)
class MixLN(Placement):
    """Mix-LN: the first layers, a fraction `share` of them, are post-norm (Li et al. 2025).

    Their number is rounded down, but is at least 1. With a share of 0, all layers are pre-norm;
    with a share of 1, all are post-norm, and a closing norm follows.
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
