"""Group norm of pictures: groups of features, over all positions of a sample."""

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import Stream
from normlab.norms.local import SequenceNorm, dividing
from normlab.norms.moments import Weights, standardize, widen


class SampleGroupNorm(SequenceNorm):
    """Each group of neighbouring features over a sample's positions (Wu and He 2018, equation 7).

    With one group it is the layer norm of that paper, `SequenceNorm`; with as many groups as
    features it is instance norm. `GroupNorm` takes the groups of one position alone.

    Raises:
        ValueError: `groups` does not divide `dim`.
    """

    def __init__(self, dim: int, *, eps: float, affine: bool, groups: int) -> None:
        super().__init__(dim, eps=eps, affine=affine)
        self.groups = dividing("gn_sample", groups, dim)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` by the statistics of each group of each sample."""
        wide, weight, bias = widen(x, self.weight, self.bias)
        groups = wide.unflatten(-1, (self.groups, -1)).transpose(1, 2).flatten(0, 1)
        valid = stream.valid.repeat_interleave(self.groups, dim=0)
        known = stream.known_tokens
        weights = Weights(
            valid.unsqueeze(-1).float(), known=None if known is None else known * self.groups
        )
        ones = torch.ones_like(weight[: groups.shape[-1]])
        y, _ = standardize(
            groups, weights, ones, torch.zeros_like(ones), pooling=self.pooling, eps=self.eps
        )
        y = y.unflatten(0, (-1, self.groups)).transpose(1, 2).flatten(2)
        return torch.addcmul(bias, y, weight).to(x.dtype)
