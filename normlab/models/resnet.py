"""The residual network for small pictures (He et al. 2016, section 4.2), its norms left open.

    picture -> 3x3, width -> norm -> ReLU -> three stages of blocks -> mean over pixels -> classes

    x --+--> 3x3 --> norm --> ReLU --> 3x3 --> norm --(+)--> ReLU --> y      a block
        |                                              |
        +---------------- shortcut --------------------+

Each stage after the first halves height and width and doubles the filters. Depth is 6 n + 2 for n
blocks a stage: 20 for n = 3.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normlab.models.anatomy import Anatomy, Stack
from normlab.models.convolution import ConvNorm, Convolution
from normlab.models.linear import Linear
from normlab.models.spec import Image, ModelArchitecture
from normlab.norms.base import Norm
from normlab.placements.base import NormFactory, Placement
from normlab.placements.pre import Pre

Shortcut = Literal["pad", "projection"]
_STAGES = 3


@dataclass(frozen=True, kw_only=True)
class ResNetArchitecture(ModelArchitecture):
    """Sizes of a residual network.

    Attributes:
        width: filters of the first stage.
        blocks: of a stage.
        shortcut: how a block that changes the shape hands its input on: every other pixel, with
            zeros for the new filters (the paper's option A), or a 1x1 convolution and a norm (B).
        zero_last_gain: start the gain of each block's last norm at 0, so that a block starts as its
            shortcut (Goyal et al. 2017, section 5.1).
    """

    takes = Image
    width: int
    blocks: int
    shortcut: Shortcut
    zero_last_gain: bool

    def __post_init__(self) -> None:
        for name in ("width", "blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name}={getattr(self, name)} must be above 0")

    def make(self, spec: Image, encoder: Placement, decoder: Placement) -> "ResNet":
        """Build the network for pictures of any size."""
        if type(encoder) is not Pre:
            raise ValueError(
                "placement: a residual network has its norms behind its convolutions, whatever the "
                "placement; leave it out"
            )
        return ResNet(self, spec, encoder.norm)


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, sizes: ResNetArchitecture, norm: NormFactory, channels: int, filters: int):
        super().__init__()
        stride = 1 if channels == filters else 2
        self.first = ConvNorm(Convolution(channels, filters, size=3, stride=stride), norm(filters))
        self.second = ConvNorm(Convolution(filters, filters, size=3), norm(filters))
        if sizes.zero_last_gain:
            _start_at_zero(self.second.norm)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 and sizes.shortcut == "projection":
            change = Convolution(channels, filters, size=1, stride=stride)
            self.shortcut = ConvNorm(change, norm(filters))
        elif stride > 1:
            self.shortcut = Subsample(filters - channels)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F h w"]:
        """Return the sum of branch and shortcut, cut at 0."""
        return F.relu_(self.second(F.relu(self.first(x))) + self.shortcut(x))


class Subsample(nn.Module):
    """Every other pixel, with `added` channels of zeros."""

    def __init__(self, added: int):
        super().__init__()
        self.added = added

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F h w"]:
        """Return the smaller picture with more channels."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.added))


class ResNet(Stack):
    """Stem, blocks and classes."""

    def __init__(self, sizes: ResNetArchitecture, spec: Image, norm: NormFactory):
        super().__init__()
        self.stem = ConvNorm(Convolution(spec.channels, sizes.width, size=3), norm(sizes.width))
        widths = [sizes.width * 2**stage for stage in range(_STAGES) for _ in range(sizes.blocks)]
        before = [sizes.width, *widths[:-1]]
        self.blocks = nn.ModuleList(
            Block(sizes, norm, channels, filters)
            for channels, filters in zip(before, widths, strict=True)
        )
        self.dropout = nn.Dropout(sizes.dropout)
        self.classes = Linear(widths[-1], spec.classes)

    def forward(self, pixels: Float[Tensor, "B H W C"]) -> Float[Tensor, "B K"]:
        """Return a logit for each class."""
        x = pixels.permute(0, 3, 1, 2)  # whose channels lie last in memory
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.classes(self.dropout(x.mean((2, 3))))

    def anatomy(self) -> Anatomy:
        """Return its ends, of pixels, and its blocks."""
        return Anatomy(
            entry=self.stem,
            first=self.stem,
            last=self.blocks[-1],
            both_ways=True,
            room=None,
            blocks=self.blocks,
        )


@torch.no_grad()
def _start_at_zero(norm: Norm) -> None:
    if not isinstance(norm.weight, nn.Parameter):
        raise ValueError(
            f"model.zero_last_gain=true: {type(norm).__name__} learns no gain that could start at "
            "0; choose a norm with one, or set it to false"
        )
    norm.weight.zero_()
