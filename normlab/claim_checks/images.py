"""Checks of norms on images: shifts, the colours of a pixel, and neighbouring pixels."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from normlab.claim_checks.check import (
    change_finding,
    check,
    exceeds_rounding,
    finding,
    values_in_words,
)
from normlab.claim_checks.inputs import draw_normal, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.data.bundled import read_bundled
from normlab.findings.relative_change import relative_change
from normlab.inspection.norm.norm_calls import run

PixelTokens = Float[Tensor, "N P D"]
HEIGHT, CHANNELS = 6, 8
SHIFTED = ("bn", "in", "gn", "ln")
CLEAR_CHANGE = 0.01  # the smallest relative change that counts
SAME_VALUE = 0.01  # normalized values that are closer look the same with two decimals


def shifted(x: Float[Tensor, "P D"]) -> Float[Tensor, "P D"]:
    """Return a square image shifted cyclically by two rows and three columns."""
    return x.unflatten(0, (HEIGHT, HEIGHT)).roll((2, 3), (0, 1)).flatten(0, 1)


def change_by_shift(layer: Callable[[PixelTokens], PixelTokens]) -> float:
    """Shift an image, and return how much a layer's output differs from its shifted old output.

    The image is the first one in a batch of four.
    """
    x = draw_normal(4, HEIGHT * HEIGHT, CHANNELS)
    with_shift = torch.cat([shifted(x[0])[None], x[1:]])
    return relative_change(layer(with_shift)[0], shifted(layer(x)[0]))


class ChangesByShift(NamedTuple):
    """How much the outputs of layers for a shifted image differ from their shifted old outputs.

    `by_norm` is keyed by the norm's name. `by_position` is for batch norm with separate statistics
    for each pixel.
    """

    by_norm: dict[str, float]
    by_position: float
    by_convolution: float


def changes_by_shift() -> ChangesByShift:
    """Shift an image before each norm and before a convolution."""

    def change(name: str, **values: int) -> float:
        return change_by_shift(lambda x: run(new_norm(name, CHANNELS, **values), x))

    return ChangesByShift(
        {name: change(name) for name in SHIFTED},
        change("bn_position", num_positions=HEIGHT * HEIGHT),
        change_by_shift(convolved),
    )


@check("images.shift")
def shift() -> list[CheckFinding]:
    """If one image of a batch is shifted, is its output shifted in the same way?"""
    by_norm, by_position, by_convolution = changes_by_shift()
    following = [name for name, change in by_norm.items() if not exceeds_rounding(change)]
    others = [name for name in by_norm if name not in following]
    in_groups = [
        f"{', '.join(names)} {verb}"
        for verb, names in (("do", following), ("do not", others))
        if names
    ]
    return [
        finding(
            "bn",
            "bn shifts its output with the image",
            "shifted in the same way" if "bn" in following else "not shifted in the same way",
            holds="bn" in following,
        ),
        finding(
            "bn does so",
            "bn shifts its output with the image, and ln does not",
            f"{'; '.join(in_groups)}; with statistics for each pixel position the output changes "
            f"by {by_position:.0%}",
            holds="bn" in following and "ln" not in following,
        ),
        change_finding(
            "a convolution",
            "a convolution computes a channel in the same way at each position: if the image is "
            "shifted, its output only shifts",
            by_convolution,
            expected=False,
        ),
    ]


def convolved(x: PixelTokens) -> PixelTokens:
    """Apply a convolution with 3 x 3 kernels, which wraps around the edges, to square images."""
    planes = x.transpose(1, 2).unflatten(2, (HEIGHT, HEIGHT))
    wrapped = functional.pad(planes, (1, 1, 1, 1), "circular")
    return (
        functional.conv2d(wrapped, draw_normal(CHANNELS, CHANNELS, 3, 3)).flatten(2).transpose(1, 2)
    )


PIXELS_APART = 4  # distance in pixels, in images of 8 x 8


@check("images.local")
def local() -> list[CheckFinding]:
    """Are neighbouring pixels more alike than pixels four apart, in 1,797 images of digits?

    This compares the mean absolute correlation of two pixels over the images. Pixels that are the
    same in all images are left out.
    """
    images = torch.from_numpy(read_bundled("digits").features).double().unflatten(1, (8, 8))
    near, far = (mean_correlation(images, apart) for apart in (1, PIXELS_APART))
    return [
        finding(
            "neighbours",
            "neighbouring pixels are more alike than pixels four apart (digits of 8 x 8 pixels)",
            f"their mean absolute correlation is {near:.2f}, and {far:.2f} four apart",
            holds=near > far,
            near=near,
            far=far,
        )
    ]


def mean_correlation(images: Float[Tensor, "N H W"], apart: int) -> float:
    """Return the mean absolute correlation of pixels that are `apart` columns or rows apart."""
    z = images - images.mean(0)
    sd = z.square().mean(0).sqrt()
    z = z / torch.where(sd > 0, sd, math.nan)
    products = (
        (z[:, :, apart:] * z[:, :, :-apart]).mean(0),
        (z[:, apart:] * z[:, :-apart]).mean(0),
    )
    return float(torch.cat([each.flatten() for each in products]).abs().nanmean())


def change_of_other_channels(name: str) -> float:
    """Return how much a norm's output in other channels changes if the first one is scaled by 5."""
    x = draw_normal(4, HEIGHT * HEIGHT, CHANNELS)
    other = x.clone()
    other[..., 0] *= 5
    before, after = (run(new_norm(name, CHANNELS), each)[..., 1:] for each in (x, other))
    return relative_change(after, before)


@check("images.channels")
def channels() -> list[CheckFinding]:
    """Do other channels of the output change if one channel of all images changes?"""
    bn, ln = change_of_other_channels("bn"), change_of_other_channels("ln")
    return [
        finding(
            "bn",
            "bn uses statistics of several channels",
            "no other channel changes" if bn == 0 else f"the others change by {bn:.0%}",
            holds=bn > 0,
        ),
        finding(
            "ln",
            "ln uses statistics of several channels",
            f"the others change by {ln:.0%}",
            holds=ln > CLEAR_CHANGE,
            moved=ln,
        ),
    ]


COLOURS = (
    (50.0, 50.0, 50.0),  # dark grey
    (200.0, 200.0, 200.0),  # light grey
    (10.0, 20.0, 30.0),  # a dark colour
    (100.0, 200.0, 300.0),  # the same, ten times as bright
)


def colours_after(name: str) -> Float[Tensor, "4 3"]:
    """Return a norm's output for an image whose four pixels have the `COLOURS`."""
    return run(new_norm(name, 3), torch.tensor([COLOURS], dtype=torch.float64))[0]


@check("images.grey")
def grey() -> list[CheckFinding]:
    """What happens to the colours of a pixel if its channels are normalized together?"""
    ln, bn = colours_after("ln"), colours_after("bn")
    lost = float(ln[:2].abs().max()) == 0 and float((ln[2] - ln[3]).abs().max()) < SAME_VALUE
    apart = min(float((bn[0] - bn[1]).abs().min()), float((bn[2] - bn[3]).abs().min()))
    return [
        finding(
            "ln",
            "ln over the channels of a pixel loses their information",
            f"two greys become {values_in_words(ln[0], 0)} and {values_in_words(ln[1], 0)}; 10 20 "
            f"30 and 100 200 300 become {values_in_words(ln[2])} and {values_in_words(ln[3])}",
            holds=lost,
        ),
        finding(
            "bn",
            "bn keeps the channels independent",
            f"two greys, and two brightnesses of a colour, differ by {apart:.2f} or more",
            holds=apart > SAME_VALUE,
        ),
    ]
