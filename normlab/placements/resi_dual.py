"""ResiDual: a post-norm stream, plus a second stream that sums all branches, normalized at the end.

    x' = norm(x + f(x)),  r' = r + f(x)

    x, r: the streams, each [B, P, D], which start as the embedded tokens; f: the sub-layer and its
    dropout.
    closing norm: only on r. The stack returns x + norm(r).
    at initialization: x keeps a constant size, and r grows like a pre-norm stream.

Source: Xie et al. 2023 ("ResiDual: Transformer with Dual Residual Connections"). The authors'
closing layer norm has an eps of 1e-7; here, its eps is `norm.eps`, as for all norms.
"""

import torch
from torch import Tensor, nn

from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, NormResidual, Norms, Placement, StackName


class ResiDualResidual(NormResidual):
    """Maps (x, r) to (norm(x + z), r + z), where z = dropout(branch(x))."""

    streams = 2

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        x, dual = x.chunk(2, dim=-1)
        added = self.dropout(branch(x))
        return torch.cat([self.norm(x + added, tokens), dual + added], dim=-1)


class Twice(nn.Module):
    """Maps the embedded tokens x to (x, x), the start of both streams."""

    def forward(self, x: Tensor, tokens: Tokens) -> Tensor:
        return torch.cat([x, x], dim=-1)


class ResiDualEnd(nn.Module):
    """Maps (x, r) to x + norm(r)."""

    def __init__(self, norm: Norm):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, tokens: Tokens) -> Tensor:
        x, dual = x.chunk(2, dim=-1)
        return x + self.norm(dual, tokens)


class ResiDual(Placement):
    """ResiDual: a post-norm stream, and a stream that sums all branches (Xie et al. 2023)."""

    drawing = """
        x ---+--> sub-layer --> dropout --+--> (+) --> norm --> x'
             |                            |     |
             +----------------------------|-----+
                                          |
        r -------------------------------(+)-----------------> r'
    """

    kind = ResiDualResidual

    def opening(self, norms: Norms, dim: int, stack: StackName) -> nn.Module:
        return Twice()

    def final(self, norms: Norms, dim: int, stack: StackName) -> nn.Module:
        return ResiDualEnd(norms.required(f"{stack}.final", dim))
