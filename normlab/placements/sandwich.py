"""Sandwich-LN and Peri-LN: a norm before and a norm after the sub-layer, both inside the branch.

    y = x + norm(f(norm(x)))

    x: the residual stream [B, P, D]; f: the sub-layer. Dropout follows the outer norm.
    closing norm: one, as in pre-norm.
    at initialization: only the outer norm sets the scale of the branch, whatever the weights.

Source: Ding et al. 2021 (CogView), with GPT-2's initial weights. Their layer norm first divides its
input by the largest entry, a safeguard for 16-bit arithmetic that is omitted here.

Peri-LN also normalizes the embedded tokens, and uses the default initial weights. Because each
sub-layer adds a norm's output to the stream, the variance of the stream grows linearly (Kim et al.
2025, "Peri-LN: Revisiting Normalization Layer in the Transformer Architecture"; no code).
"""

from torch import Tensor

from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, Norms, Place, Residual, StackName
from normlab.placements.pre import DepthScaledPre, PreResidual


class SandwichResidual(PreResidual):
    """`x + dropout(out_norm(branch(norm(x))))`."""

    def __init__(self, norms: Norms, dim: int, place: Place, dropout: float):
        super().__init__(norms.required(place.path, dim), dropout)
        self.out_norm = norms.required(f"{place.path}.out", dim)

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        return x + self.dropout(self.out_norm(branch(self.norm(x, tokens)), tokens))


class Sandwich(DepthScaledPre):
    """Sandwich-LN, `x + norm(f(norm(x)))` (Ding et al. 2021)."""

    drawing = """
        x ---+--> norm --> sub-layer --> norm --> dropout --> (+) --> y
             |                                                 |
             +-------------------------------------------------+
    """

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        return SandwichResidual(norms, dim, place, self.dropout)


class Peri(Sandwich):
    """Peri-LN: Sandwich-LN, and a norm on the embedded tokens (Kim et al. 2025)."""

    def opening(self, norms: Norms, dim: int, stack: StackName) -> Norm:
        return norms.required(f"{stack}.opening", dim)
