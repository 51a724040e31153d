"""Keel: post-norm with a scaled-up stream, and a second norm inside the branch.

    y = norm(a x + f(norm(x))),  a = residual connections in the stack
    y = x + f(norm(x))           in the first of them

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout.
    closing norm: none, because the last layer already ends in a norm.
    at initialization: thanks to a, the output of the first layers survives the norms at any depth.

Source: Chen and Wei 2026 ("Post-LayerNorm Is Back: Stable, ExpressivE, and Deep"; no public code),
wired as in vit-pytorch. Other ports use a = 1 in the whole first layer, or make it pre-norm.
"""

from torch import Tensor

from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, Norms, Place, Residual
from normlab.placements.post import Post
from normlab.placements.pre import PreResidual
from normlab.placements.sandwich import SandwichResidual


class KeelResidual(SandwichResidual):
    """`out_norm(factor * x + dropout(branch(norm(x))))`."""

    def __init__(self, norms: Norms, dim: int, place: Place, dropout: float):
        super().__init__(norms, dim, place, dropout)
        self.factor = place.connections

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        added = self.dropout(branch(self.norm(x, tokens)))
        return self.out_norm(self.factor * x + added, tokens)


class Keel(Post):
    """Keel, `norm(a x + f(norm(x)))` (Chen and Wei 2026)."""

    drawing = """
        x ---+--> norm --> sub-layer --> dropout --> (+) --> norm --> y
             |                                        |
             +--> x a --------------------------------+
    """

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        if place.layer == 0 and place.sublayer == "self":
            return PreResidual(norms.required(place.path, dim), self.dropout)
        return KeelResidual(norms, dim, place, self.dropout)
