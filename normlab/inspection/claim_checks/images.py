"""Images and norms on them: shifts of an image, colours of a pixel, pixels next to each other."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from normlab.claims.evidence import CheckFinding
from normlab.data.bundled import read_bundled
from normlab.findings.relative_change import relative_change
from normlab.inspection.claim_checks.check import change_finding, check, finding, in_words
from normlab.inspection.claim_checks.inputs import draw, new_norm
from normlab.inspection.norm.norm_calls import run

HEIGHT, CHANNELS = 6, 8
SHIFTED = ("bn", "in", "gn", "ln")


def shifted(x: Float[Tensor, "P D"]) -> Float[Tensor, "P D"]:
    """Return a square image, rolled by two rows and three columns."""
    return x.unflatten(0, (HEIGHT, HEIGHT)).roll((2, 3), (0, 1)).flatten(0, 1)


@check("images.shift")
def shift() -> list[CheckFinding]:
    """If one image of a batch is shifted, is its output shifted in the same way?"""
    x = draw(4, HEIGHT * HEIGHT, CHANNELS)
    other = torch.cat([shifted(x[0])[None], x[1:]])

    def off(name: str, **values: int) -> float:
        before, after = (run(new_norm(name, CHANNELS, **values), each)[0] for each in (x, other))
        return relative_change(after, shifted(before))

    following = [name for name in SHIFTED if off(name) < 1e-9]
    others = [name for name in SHIFTED if name not in following]
    by_position = off("bn_position", num_positions=HEIGHT * HEIGHT)
    by_convolution = relative_change(convolved(other)[0], shifted(convolved(x)[0]))
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
            "bn does so, and ln does not",
            f"{'; '.join(in_groups)}; with statistics for each pixel the output changes by "
            f"{by_position:.0%}",
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


def convolved(x: Float[Tensor, "N P D"]) -> Float[Tensor, "N P D"]:
    """Return square images after a convolution with kernels of 3 x 3, wrapped at the edge."""
    planes = x.transpose(1, 2).unflatten(2, (HEIGHT, HEIGHT))
    wrapped = functional.pad(planes, (1, 1, 1, 1), "circular")
    return functional.conv2d(wrapped, draw(CHANNELS, CHANNELS, 3, 3)).flatten(2).transpose(1, 2)


FAR = 4  # distance in pixels, in images of 8 x 8


@check("images.local")
def local() -> list[CheckFinding]:
    """Are neighbouring pixels more alike than pixels four apart, in 1,797 images of digits?

    The value is the mean absolute correlation of two pixels over the images; pixels that are the
    same in all images do not count.
    """
    images = torch.from_numpy(read_bundled("digits").features).double().unflatten(1, (8, 8))
    near, far = (mean_correlation(images, apart) for apart in (1, FAR))
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
    """Return the mean absolute correlation of pixels so many columns or rows apart."""
    z = images - images.mean(0)
    sd = z.square().mean(0).sqrt()
    z = z / torch.where(sd > 0, sd, math.nan)
    products = (
        (z[:, :, apart:] * z[:, :, :-apart]).mean(0),
        (z[:, apart:] * z[:, :-apart]).mean(0),
    )
    return float(torch.cat([each.flatten() for each in products]).abs().nanmean())


@check("images.channels")
def channels() -> list[CheckFinding]:
    """Do other channels of the output change if one channel of all images does?"""
    x = draw(4, HEIGHT * HEIGHT, CHANNELS)
    other = x.clone()
    other[..., 0] *= 5

    def moved(name: str) -> float:
        before, after = (run(new_norm(name, CHANNELS), each)[..., 1:] for each in (x, other))
        return relative_change(after, before)

    bn, ln = moved("bn"), moved("ln")
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
            holds=ln > 0.01,
            moved=ln,
        ),
    ]


@check("images.grey")
def grey() -> list[CheckFinding]:
    """What happens to the colours of a pixel if its channels are normalized together?"""
    colours = {
        "dark grey": (50.0, 50.0, 50.0),
        "light grey": (200.0, 200.0, 200.0),
        "a dark colour": (10.0, 20.0, 30.0),
        "the same, ten times as bright": (100.0, 200.0, 300.0),
    }
    x = torch.tensor([*colours.values()], dtype=torch.float64)[None]
    ln, bn = (run(new_norm(name, 3), x)[0] for name in ("ln", "bn"))
    lost = float(ln[:2].abs().max()) == 0 and float((ln[2] - ln[3]).abs().max()) < 0.01
    apart = min(float((bn[0] - bn[1]).abs().min()), float((bn[2] - bn[3]).abs().min()))
    return [
        finding(
            "ln",
            "ln over the channels of a pixel loses their information",
            f"greys become {in_words(ln[0], 0)} and {in_words(ln[1], 0)}, 10 20 30 and 100 200 300 "
            f"{in_words(ln[2])} and {in_words(ln[3])}",
            holds=lost,
        ),
        finding(
            "bn",
            "bn keeps the channels independent",
            f"greys and brightnesses differ by {apart:.2f} or more",
            holds=apart > 0.01,
        ),
    ]
