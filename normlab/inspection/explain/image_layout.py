"""`normlab explain NORM --layout images`: shows which of N x C x H x W values a norm pools."""

from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from normlab.config.registry import Option
from normlab.inspection.explain.section import Section
from normlab.inspection.norm.example_norm import LONG_RUN, example_norm
from normlab.inspection.norm.norm_calls import affected, normal, run_copy
from normlab.inspection.norm.worked_example import at_shown_step
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


class PooledCells(NamedTuple):
    """A place in the images, and which values share its statistics, itself included."""

    place: tuple[int, ...]
    cells: Bool[Tensor, "N P C"]


def pooled(norm: Norm) -> PooledCells:
    """Return which values affect an output, found by changing one at a time.

    The output is the first one that depends on other values, or the first one if there is none.
    """
    x = normal(IMAGES, PIXELS, CHANNELS, seed=7)
    before = run_copy(norm, x)
    places = [*product(*map(range, x.shape))]
    sources = torch.stack([affected(norm, x, place, before) for place in places], -1)
    for number, place in enumerate(places):
        sources[(*place, number)] = True
    chosen = next((place for place in places if sources[place].sum() > 1), places[0])
    return PooledCells(chosen, sources[chosen].view(x.shape))


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
    shown = at_shown_step(example_norm(option))
    shared = pooled(shown.make())
    count = int(shared.cells.sum())
    text = (
        f"Pools over {pooled_axes_in_words(shared.cells)}{f': {count} values' * (count > 1)}. "
        f"{f'Shown at step {shown.step} of {LONG_RUN:,}.' if shown.step else ''} "
        f"{FIGURE.get(option.name, '')} Two images of {HEIGHT} x {HEIGHT} pixels with {CHANNELS} "
        "channels; `#` shares its statistics with `*`."
    )
    return Section(f"{option.name}: {option.description}", " ".join(text.split()), _drawing(shared))


def _drawing(shared: PooledCells) -> list[str]:
    """Return the lines of a drawing with a square of pixels for each image and channel."""
    lines = [" " * 10 + "".join(f"channel {c + 1}".ljust(12) for c in range(CHANNELS)).rstrip()]
    for n in range(IMAGES):
        for row in range(HEIGHT):
            label = f"image {n + 1}" if row == 0 else ""
            squares = [
                " ".join(_mark(shared, (n, row * HEIGHT + column, c)) for column in range(HEIGHT))
                for c in range(CHANNELS)
            ]
            lines.append((label.ljust(10) + "".join(each.ljust(12) for each in squares)).rstrip())
        lines.append("")
    return lines[:-1]


def _mark(shared: PooledCells, place: tuple[int, ...]) -> str:
    if place == shared.place:
        return "*"
    return "#" if shared.cells[place] else "."
