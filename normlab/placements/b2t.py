"""B2T connection: post-norm, with the layer's own input added once more before its last norm.

        x ---+--> attention --> (+) --> norm --+--> feed-forward --> (+) --> norm --> y
             |                   |             |                      |
             +-------------------+             +----------------------+
             |                                                        |
             +--------------------------------------------------------+

    y = norm(x + x' + f(x')),  x' = norm(x + attention(x))

    closing norm: none, since the last layer ends in one.
    at initialization: all weights of a layer are divided by sqrt(layers of the stack).

Source: Takase et al. 2023 ("B2T Connection: Serving Stability and Performance in Deep
Transformers"); the initial weights follow the authors' code. The layer's input is carried to the
last sub-layer as a second stream.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from normlab.norms.base import Stream
from normlab.placements.base import XAVIER, Branch, Norms, Place, Residual, Role
from normlab.placements.post import Post, PostResidual


class FirstResidual(PostResidual):
    """(norm(x + dropout(branch(x))), x)."""

    streams: ClassVar[int] = 2

    def forward(self, x: Tensor, stream: Stream, branch: Branch) -> Tensor:
        return torch.cat([super().forward(x, stream, branch), x], dim=-1)


class MiddleResidual(PostResidual):
    """(norm(x + dropout(branch(x))), bottom) of (x, bottom)."""

    streams: ClassVar[int] = 2

    def forward(self, x: Tensor, stream: Stream, branch: Branch) -> Tensor:
        x, bottom = x.chunk(2, dim=-1)
        return torch.cat([super().forward(x, stream, branch), bottom], dim=-1)


class LastResidual(PostResidual):
    """norm(bottom + x + dropout(branch(x))) of (x, bottom)."""

    def forward(self, x: Tensor, stream: Stream, branch: Branch) -> Tensor:
        x, bottom = x.chunk(2, dim=-1)
        return self.norm(bottom + x + self.dropout(branch(x)), stream)


_KINDS = {"self": FirstResidual, "cross": MiddleResidual, "ffn": LastResidual}


@dataclass(eq=False, kw_only=True)
class B2T(Post):
    """B2T placement; `rescaled` starts with the smaller weights of the authors' code."""

    rescaled: bool

    def residual(self, norms: Norms, dim: int, place: Place) -> Residual:
        return _KINDS[place.sublayer](norms.at(place.path, dim), self.dropout)

    def gain(self, role: Role, place: Place) -> float:
        return XAVIER[role] * (place.layers**-0.5 if self.rescaled else 1.0)
