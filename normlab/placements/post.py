"""Post-norm: the norm is applied after the addition, to the stream itself.

    y = norm(x + f(x))

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout.
    closing norm: none, because the last layer already ends in a norm.

Source: Vaswani et al. 2017 ("Attention Is All You Need"), section 3.1.
"""

from torch import Tensor

from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, NormResidual, Placement


class PostResidual(NormResidual):
    """`norm(x + dropout(branch(x)))`."""

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        return self.norm(x + self.dropout(branch(x)), tokens)


class Post(Placement):
    """Post-norm, `norm(x + f(x))`, of the original Transformer and BERT (Vaswani et al. 2017)."""

    drawing = """
        x ---+--> sub-layer --> dropout --> (+) --> norm --> y
             |                               |
             +-------------------------------+
    """

    kind = PostResidual
    closing = False
