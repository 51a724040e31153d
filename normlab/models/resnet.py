"""The residual network for small images (He et al. 2016, section 4.2), with any norm.

    image -> 3x3 conv -> norm -> ReLU -> three stages of blocks -> mean over pixels -> classes

    x --+--> 3x3 --> norm --> ReLU --> 3x3 --> norm --(+)--> ReLU --> y      a block
        |                                              |
        +---------------- shortcut --------------------+

Each stage after the first halves height and width and doubles the number of filters. With n blocks
per stage the depth is 6 n + 2: 20 for n = 3.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normlab.models.base import Anatomy, Fold, Image, ModelArchitecture, Stack
from normlab.models.layers import OutputLayer
from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Placement

Shortcut = Literal["pad", "projection", "none"]
_STAGES = 3


class Convolution(nn.Conv2d):
    """A 3 x 3 or 1 x 1 convolution without bias, padded so that stride 1 keeps the size."""

    sublayer: ClassVar[str] = "convolution"
    path: str = ""

    def __init__(self, channels: int, filters: int, *, size: int, stride: int = 1):
        nn.Module.__init__(self)
        with torch.device("meta"):  # keeps torch from drawing its own values
            super().__init__(channels, filters, size, stride=stride, padding=size // 2, bias=False)
        self.weight = nn.Parameter(torch.empty(filters, channels, size, size))

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 2 / fan_in), which preserves variance through ReLU (He et al. 2015)."""
        fan_in = self.in_channels * math.prod(self.kernel_size)
        values = torch.empty_like(self.weight, device="cpu")
        self.weight.copy_(values.normal_(std=math.sqrt(2 / fan_in), generator=generator))


def normalized(norm: Norm, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
    """Apply a norm to images, with each pixel as a position and no padding.

    In channels-last memory format, which convolutions return, the reshapes do not copy.
    """
    height, width = x.shape[2:]
    pixels = x.permute(0, 2, 3, 1).flatten(1, 2)
    return norm(pixels, Tokens()).unflatten(1, (height, width)).permute(0, 3, 1, 2)


class ConvNorm(nn.Module):
    """A convolution followed by a norm."""

    def __init__(self, convolution: Convolution, norm: Norm):
        super().__init__()
        self.convolution = convolution
        self.norm = norm
        convolution.path = norm.path

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F h w"]:
        """Return the normalized output of the convolution."""
        return normalized(self.norm, self.convolution(x))

    def folds(self) -> Sequence[Fold]:
        """Return the norm, which folds into the convolution."""
        return [Fold(self, "norm", preceding=self.convolution)]


@dataclass(frozen=True, kw_only=True)
class ResNetArchitecture(ModelArchitecture):
    """Architecture settings of a ResNet.

    Attributes:
        width: number of filters in the first stage.
        blocks: number of blocks per stage.
        shortcut: the shortcut of a block that changes the shape: subsampling with zeros for the
            new filters (the paper's option A), or a 1x1 convolution with a norm (option B).
        zero_last_gain: whether the gain of each block's last norm starts at 0, so that each block
            starts as its shortcut (Goyal et al. 2017, section 5.1).
    """

    takes = Image
    own_norms: ClassVar[str | None] = "a residual network has its norms after its convolutions"
    width: int
    blocks: int
    shortcut: Shortcut
    zero_last_gain: bool

    def make(self, spec: Image, placement: Placement, norms: Norms) -> "ResNet":
        return ResNet(self, spec, norms)


class Block(nn.Module):
    """A residual block: two convolutions and a shortcut."""

    def __init__(
        self, sizes: ResNetArchitecture, norms: Norms, path: str, channels: int, filters: int
    ):
        super().__init__()
        stride = 1 if channels == filters else 2

        def normed(name: str, convolution: Convolution) -> ConvNorm:
            return ConvNorm(convolution, norms.required(f"{path}.{name}", filters))

        self.first = normed("first", Convolution(channels, filters, size=3, stride=stride))
        self.second = normed("second", Convolution(filters, filters, size=3))
        if sizes.zero_last_gain:
            self.second.norm.start_gain(0.0, key="model.zero_last_gain=true")
        self.shortcut: nn.Module | None = nn.Identity()
        if sizes.shortcut == "none":
            self.shortcut = None
        elif stride > 1 and sizes.shortcut == "projection":
            change = Convolution(channels, filters, size=1, stride=stride)
            self.shortcut = normed("shortcut", change)
        elif stride > 1:
            self.shortcut = Subsample(filters - channels)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F h w"]:
        """Return the ReLU of the branch plus the shortcut, if there is one."""
        branch = self.second(F.relu(self.first(x)))
        return F.relu_(branch if self.shortcut is None else branch + self.shortcut(x))


class Subsample(nn.Module):
    """Keeps every other pixel and adds `added` channels of zeros."""

    def __init__(self, added: int):
        super().__init__()
        self.added = added

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F h w"]:
        """Return the subsampled image with the added channels."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.added))


class ResNet(Stack):
    """A residual network: stem, blocks and classifier."""

    def __init__(self, sizes: ResNetArchitecture, spec: Image, norms: Norms):
        super().__init__()
        stem = Convolution(spec.channels, sizes.width, size=3)
        self.stem = ConvNorm(stem, norms.required("stem", sizes.width))
        widths = [sizes.width * 2**stage for stage in range(_STAGES) for _ in range(sizes.blocks)]
        before = [sizes.width, *widths[:-1]]
        self.blocks = nn.ModuleList(
            Block(sizes, norms, f"blocks.{number}", channels, filters)
            for number, (channels, filters) in enumerate(zip(before, widths, strict=True))
        )
        self.dropout = nn.Dropout(sizes.dropout)
        self.classes = OutputLayer(widths[-1], spec.classes)

    def forward(self, pixels: Float[Tensor, "B H W C"]) -> Float[Tensor, "B K"]:
        """Return a logit for each class."""
        x = pixels.permute(0, 3, 1, 2)  # a view, so memory stays channels-last
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.classes(self.dropout(x.mean((2, 3))))

    def anatomy(self) -> Anatomy:
        return Anatomy(
            entry=self.stem,
            first=self.stem,
            last=self.blocks[-1],
            both_ways=True,
            max_positions=None,
            blocks=self.blocks,
        )
