"""`normlab explain NORM --layout images`: shows which of N x C x H x W values a norm pools."""

from itertools import product

import torch
from jaxtyping import Bool
from torch import Tensor

from normlab.config.registry import Option
from normlab.inspection.explain.section import Section
from normlab.inspection.norm.example_norm import example_norm
from normlab.inspection.norm.norm_calls import affected, normal, run_copy
from normlab.norms.base import Norm

IMAGES, CHANNELS, HEIGHT, PIXELS = 2, 4, 2, 4
FIGURE = {
    "bn": "BN of Wu and He's figure.",
    "seqn": "LN of Wu and He's figure: all channels and pixels of an image.",
    "ln": "A layer norm of each pixel over its channels, as in ViT and ConvNeXt; LN of Wu and He's "
    "figure is seqn.",
    "in": "IN of Wu and He's figure.",
    "gn_sample": "GN of Wu and He's figure.",
    "gn": "Groups of channels of one pixel; GN of Wu and He's figure is gn_sample.",
}


def pooled(norm: Norm) -> Bool[Tensor, "N P C"]:
    """Return which values affect the first output, found by changing one at a time."""
    x = normal(IMAGES, PIXELS, CHANNELS, seed=7)
    before = run_copy(norm, x)
    cells = torch.zeros(x.shape, dtype=torch.bool)
    for place in product(*map(range, x.shape)):
        cells[place] = affected(norm, x, place, before)[0, 0, 0]
    cells[0, 0, 0] = True
    return cells


def pooled_axes_in_words(cells: Bool[Tensor, "N P C"]) -> str:
    """Return the axes along which cells differ, such as `N, H, W` or `part of C, H, W`."""
    grid = cells.unflatten(1, (HEIGHT, HEIGHT)).permute(0, 3, 1, 2)
    names = []
    for name, size, places in zip("NCHW", grid.shape, grid.nonzero().T, strict=True):
        reached = len(places.unique())
        if reached > 1:
            names.append(name if reached == size else f"part of {name}")
    return ", ".join(names) or "nothing"


def in_images(option: Option) -> Section:
    """Draw which values share statistics with the first one, in one square per channel."""
    cells = pooled(example_norm(option).make())
    text = (
        f"Pools over {pooled_axes_in_words(cells)}: {int(cells.sum())} values. "
        f"{FIGURE.get(option.name, '')} Two images of {HEIGHT} x {HEIGHT} pixels with {CHANNELS} "
        "channels; `#` shares its statistics with `*`."
    )
    return Section(f"{option.name}: {option.description}", " ".join(text.split()), _drawing(cells))


def _drawing(cells: Bool[Tensor, "N P C"]) -> list[str]:
    """Return the lines of a drawing with a square of pixels for each image and channel."""
    lines = [" " * 10 + "".join(f"channel {c + 1}".ljust(12) for c in range(CHANNELS)).rstrip()]
    for n in range(IMAGES):
        for row in range(HEIGHT):
            label = f"image {n + 1}" if row == 0 else ""
            squares = [
                " ".join(_mark(cells, n, row * HEIGHT + column, c) for column in range(HEIGHT))
                for c in range(CHANNELS)
            ]
            lines.append((label.ljust(10) + "".join(each.ljust(12) for each in squares)).rstrip())
        lines.append("")
    return lines[:-1]


def _mark(cells: Bool[Tensor, "N P C"], *place: int) -> str:
    if not any(place):
        return "*"
    return "#" if cells[place] else "."
