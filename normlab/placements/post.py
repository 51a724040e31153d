"""Post-norm: the norm is applied after the addition, to the stream itself.

    y = norm(x + f(x))

    closing norm: none, since the last layer already ends in a norm.

Source: Vaswani et al. 2017, section 3.1.
"""

from torch import Tensor

from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, NormResidual, Placement


class PostResidual(NormResidual):
    """y = norm(x + dropout(branch(x)))."""

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        return self.norm(x + self.dropout(branch(x)), tokens)


class Post(Placement):
    """Post-norm placement (the original Transformer, BERT, fairseq's IWSLT'14 README recipe)."""

    drawing = """
        x ---+--> sub-layer --> dropout --> (+) --> norm --> y
             |                               |
             +-------------------------------+
    """

    kind = PostResidual
    closing = False
