"""Convolutions, and norms on pictures."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import Norm, Stream


class Convolution(nn.Conv2d):
    """A 3 x 3 or 1 x 1 convolution without bias, padded so that stride 1 keeps the size."""

    sublayer: ClassVar[str] = "convolution"

    def __init__(self, channels: int, filters: int, *, size: int, stride: int = 1):
        nn.Module.__init__(self)
        with torch.device("meta"):  # keeps torch from drawing values of its own
            super().__init__(channels, filters, size, stride=stride, padding=size // 2, bias=False)
        self.weight = nn.Parameter(torch.empty(filters, channels, size, size))

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 2 / fan in), which keeps the variance through ReLU (He et al. 2015)."""
        fan_in = self.in_channels * math.prod(self.kernel_size)
        values = torch.empty_like(self.weight, device="cpu")
        self.weight.copy_(values.normal_(std=math.sqrt(2 / fan_in), generator=generator))


def normalized(norm: Norm, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
    """Apply a norm to pictures, whose pixels are its positions, all of them real.

    Both views are free where the channels lie last in memory, as they do behind `Convolution`.
    """
    height, width = x.shape[2:]
    pixels = x.permute(0, 2, 3, 1).flatten(1, 2)
    return norm(pixels, Stream()).unflatten(1, (height, width)).permute(0, 3, 1, 2)


class ConvNorm(nn.Module):
    """A convolution, then its norm."""

    def __init__(self, convolution: Convolution, norm: Norm):
        super().__init__()
        self.convolution = convolution
        self.norm = norm

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F h w"]:
        """Return the normalized output of the filters."""
        return normalized(self.norm, self.convolution(x))
