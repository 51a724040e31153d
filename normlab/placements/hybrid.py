"""HybridNorm: norms on queries, keys and values; feed-forward layers add to the normalized stream.

    attention       y = x + f(x),  with norms on queries, keys and values
    feed-forward    y = n + f(n),  n = norm(x)

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout. The norms in attention are
    on each head; the feed-forward branch is added to the norm's output, not to its input.
    closing norm: one, as in pre-norm.
    at initialization: GPT-2's factor on the last linear layer of each sub-layer.

Source: Zhuo et al. 2025 ("HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid
Normalization") with RMS norms, wired as in the authors' code. The paper's figures show the
feed-forward norm after the addition. In HybridNorm* (`star`), the first layer is pre-norm and keeps
its q, k and v norms. The authors use no cross-attention; here, it is wired like self-attention.
"""

from dataclasses import dataclass

from torch import Tensor

from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, NormResidual, Norms, Place, Residual
from normlab.placements.pre import DepthScaledPre


class PlainResidual(Residual):
    """`x + dropout(branch(x))`."""

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        return x + self.dropout(branch(x))


class NormedStreamResidual(NormResidual):
    """`n + dropout(branch(n))`, where n = norm(x)."""

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        x = self.norm(x, tokens)
        return x + self.dropout(branch(x))


@dataclass(eq=False, kw_only=True)
class Hybrid(DepthScaledPre):
    """HybridNorm: q, k and v norms, and `n + f(n)` for n = norm(x) (Zhuo et al. 2025).

    With `star`, it is HybridNorm*, whose first layer is pre-norm.
    """

    drawing = """
        x ---+--> attention (norms of each head's q, k, v) --> dropout --> (+) --> y
             |                                                              |
             +--------------------------------------------------------------+

        x --> norm --+--> feed-forward --> dropout --> (+) --> y
                     |                                  |
                     +----------------------------------+
    """

    always = (".q", ".k", ".v")

    star: bool

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        if self.star and place.layer == 0:
            return super().residual(norms, dim, place)
        if place.sublayer == "ffn":
            return NormedStreamResidual(norms.required(place.path, dim), self.dropout)
        return PlainResidual(self.dropout)
