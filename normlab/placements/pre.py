"""Pre-norm: the norm is inside the branch; the stream itself is never normalized.

    y = x + f(norm(x))

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout.
    closing norm: one, after the last layer, because nothing else bounds the stream.

Source: Xiong et al. 2020 ("On Layer Normalization in the Transformer Architecture"), figure 1(b).
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, NormResidual, Place, Placement, Role


class PreResidual(NormResidual):
    """`x + dropout(branch(norm(x)))`."""

    branch_norm: ClassVar[str | None] = "norm"

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        return x + self.dropout(branch(self.norm(x, tokens)))


class Pre(Placement):
    """Pre-norm, `x + f(norm(x))`, as in GPT-2 (Xiong et al. 2020, figure 1(b))."""

    drawing = """
        x ---+--> norm --> sub-layer --> dropout --> (+) --> y
             |                                        |
             +----------------------------------------+
    """

    kind = PreResidual


@dataclass(eq=False, kw_only=True)
class DepthScaledPre(Pre):
    """Pre-norm, with GPT-2's initial weights if `depth_scaled` is set.

    These divide the weights of each branch's last linear layer by the square root of the number of
    residual connections in the stack (Radford et al. 2019, section 2.3; "scaled initialization" in
    Shoeybi et al. 2019).
    """

    depth_scaled: bool

    def weight_factor(self, role: Role, place: Place) -> float:
        scaled = self.depth_scaled and role in ("out", "fc2")
        return place.connections**-0.5 if scaled else 1.0
