"""SiameseNorm: a post-norm stream x and a pre-norm stream y that share every sub-layer.

    x' = n + z / c,  y' = y + z,  z = f(norm(n + norm(y))),  n = norm(x)
    c = sqrt(2 l) in layer l = 1, 2, ... of its stack

    x, y: the streams, each [B, P, D], which start as the embedded tokens; f: the sub-layer and its
    dropout. The four norms are different ones.
    closing norm: the stack returns norm(norm(x) + norm(y)).
    at initialization: y grows like a pre-norm stream, and x stays normalized.

Source: Li et al. 2026 ("SiameseNorm: Breaking the Barrier to Reconciling Pre/Post-Norm"), wired as
in their code for DeiT. According to secondary sources, the paper has c = sqrt(l) and returns
x + norm(y).
"""

import math

import torch
from torch import Tensor, nn

from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, NormResidual, Norms, Place, Placement, StackName
from normlab.placements.resi_dual import Twice


class SiameseResidual(NormResidual):
    """Maps (x, y) to (n + z / factor, y + z).

    Here n = x_norm(x), and z = dropout(branch(norm(n + y_norm(y)))).
    """

    branch_norm = "norm"
    streams = 2

    def __init__(self, norms: Norms, dim: int, place: Place, dropout: float):
        super().__init__(norms.required(place.path, dim), dropout, math.sqrt(2 * (place.layer + 1)))
        self.x_norm = norms.required(f"{place.path}.x", dim)
        self.y_norm = norms.required(f"{place.path}.y", dim)

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        x, y = x.chunk(2, dim=-1)
        x = self.x_norm(x, tokens)
        z = self.dropout(branch(self.norm(x + self.y_norm(y, tokens), tokens)))
        return torch.cat([x + z / self.factor, y + z], dim=-1)


class SiameseEnd(nn.Module):
    """Maps (x, y) to norm(x_norm(x) + y_norm(y))."""

    def __init__(self, norms: Norms, dim: int, path: str):
        super().__init__()
        self.norm = norms.required(path, dim)
        self.x_norm = norms.required(f"{path}.x", dim)
        self.y_norm = norms.required(f"{path}.y", dim)

    def forward(self, x: Tensor, tokens: Tokens) -> Tensor:
        x, y = x.chunk(2, dim=-1)
        return self.norm(self.x_norm(x, tokens) + self.y_norm(y, tokens), tokens)


class Siamese(Placement):
    """SiameseNorm: a post-norm and a pre-norm stream that share sub-layers (Li et al. 2026)."""

    drawing = """
        x --> norm --+-------------------------------------------> (+) --> x'
                     |                                              |
                    (+) --> norm --> sub-layer --> dropout --> z ---+ / c
                     |                                         |
        y -+-> norm -+                                         |
           |                                                   |
           +-------------------------------------------------> (+) --> y'
    """

    def residual(self, norms: Norms, dim: int, place: Place) -> SiameseResidual:
        return SiameseResidual(norms, dim, place, self.dropout)

    def opening(self, norms: Norms, dim: int, stack: StackName) -> nn.Module:
        return Twice()

    def final(self, norms: Norms, dim: int, stack: StackName) -> nn.Module:
        return SiameseEnd(norms, dim, f"{stack}.final")
