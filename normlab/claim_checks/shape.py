"""Checks of how a norm's output is distributed, and of how vectors grow without norms."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.claim_checks.check import check, finding
from normlab.claim_checks.inputs import SEED, WIDTH, draw_normal, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.inspection.norm.norm_calls import run

PRODUCTS, WIDE = 8, 256
MOMENT_TOLERANCE = 1e-3  # eps changes a variance of 1 by less
AVERAGE_TOLERANCE = 0.01  # of moments that are averaged over tokens
ZERO = 0.005  # the largest mean that is written as 0.00
LARGE_MEAN = 0.5
NO_SKEWNESS = 0.1
GROWTH = 1.05  # the smallest factor that counts as growth


class BatchNormOutput(NamedTuple):
    """The distribution of batch norm's output for skewed features.

    `mean` and `var` are the largest distances of a feature's mean from 0, and of its variance
    from 1. The skewness before and after the norm is averaged over features.
    """

    mean: float
    var: float
    skewness_before: float
    skewness_after: float


def batch_norm_output() -> BatchNormOutput:
    """Normalize 4,096 tokens whose features have exponential distributions of different scales."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.empty(64, 64, WIDTH, dtype=torch.float64).exponential_(generator=generator)
    x = x * torch.linspace(0.5, 2, WIDTH, dtype=torch.float64)
    y = run(new_norm("bn"), x).flatten(0, 1)
    return BatchNormOutput(
        mean=float(y.mean(0).abs().max()),
        var=float((y.var(0, correction=0) - 1).abs().max()),
        skewness_before=float(skewness(x.flatten(0, 1)).mean()),
        skewness_after=float(skewness(y).mean()),
    )


def skewness(x: Float[Tensor, "N D"]) -> Float[Tensor, " D"]:
    """Return E (x - mean)^3 / sd^3 of each column."""
    centered = x - x.mean(0)
    return centered.pow(3).mean(0) / centered.square().mean(0).pow(1.5)


@check("shape.kept")
def distribution() -> list[CheckFinding]:
    """Is a norm's output a standard normal distribution?

    Each feature of 4,096 tokens has an exponential distribution with its own scale.
    """
    y = batch_norm_output()
    return [
        finding(
            "bn gives a mean",
            "bn gives a mean of 0 and a variance of 1",
            f"features are within {y.mean:.3f} of mean 0 and within {y.var:.3f} of variance 1",
            holds=max(y.mean, y.var) < MOMENT_TOLERANCE,
            mean=y.mean,
            var=y.var,
        ),
        finding(
            "bn gives a standard",
            "bn gives a standard normal distribution",
            f"the skewness of its features is {y.skewness_after:.2f}, and {y.skewness_before:.2f} "
            "before the norm; a normal distribution's is 0",
            holds=abs(y.skewness_after) < NO_SKEWNESS,
            before=y.skewness_before,
            after=y.skewness_after,
        ),
    ]


class RmsNormOutput(NamedTuple):
    """The moments of tokens after RMS norm, averaged over tokens.

    `largest_ln_mean` is the largest absolute mean of a token after layer norm.
    """

    mean: float
    var: float
    square: float
    largest_ln_mean: float


def rms_norm_output() -> RmsNormOutput:
    """Normalize tokens whose mean is 3 standard deviations."""
    x = draw_normal(64, 64, WIDE) + 3
    y, by_ln = (run(new_norm(name, WIDE), x) for name in ("rms", "ln"))
    return RmsNormOutput(
        mean=float(y.mean(-1).mean()),
        var=float(y.var(-1, correction=0).mean()),
        square=float(y.square().mean()),
        largest_ln_mean=float(by_ln.mean(-1).abs().max()),
    )


@check("shape.rms")
def rms_moments() -> list[CheckFinding]:
    """What are the mean and variance of tokens after RMSNorm if their mean was not 0?"""
    y = rms_norm_output()
    return [
        finding(
            "rms subtracts",
            "rms subtracts no mean",
            f"tokens whose mean is 3 standard deviations have a mean of {y.mean:.2f} after rms, "
            f"and of {y.largest_ln_mean:.2f} after ln",
            holds=y.mean > LARGE_MEAN and y.largest_ln_mean < ZERO,
            mean=y.mean,
            by_ln=y.largest_ln_mean,
        ),
        finding(
            "rms gives",
            "rms gives a variance of 1",
            f"the mean square is {y.square:.2f}, and the variance {y.var:.2f}",
            holds=abs(y.var - 1) < AVERAGE_TOLERANCE,
            square=y.square,
            var=y.var,
        ),
    ]


def largest_moment_error(name: str, axis: int, *, per_feature: bool) -> float:
    """Return the largest deviation of an output's mean from b, or of its variance from g^2.

    The scale g and the shift b differ between features if `per_feature` is set. The moments of each
    feature (`axis` 0) are compared with its own b and g^2, and the moments of each token (`axis` 1)
    with the means of b and g^2.
    """
    gain, shift = 0.5 + draw_normal(WIDTH, seed=SEED + 1).abs(), draw_normal(WIDTH, seed=SEED + 2)
    g, b = (gain, shift) if per_feature else (gain[:1], shift[:1])
    norm = new_norm(name)
    norm.weight.data.copy_(g.expand(WIDTH))
    norm.bias.data.copy_(b.expand(WIDTH))
    y = run(norm, draw_normal(16, 16, WIDTH)).flatten(0, 1)
    want_mean, want_var = (b, g.square()) if axis == 0 else (b.mean(), g.square().mean())
    means = (y.mean(axis) - want_mean).abs()
    return max(float(means.max()), float((y.var(axis, correction=0) - want_var).abs().max()))


@check("shape.moments")
def output_moments() -> list[CheckFinding]:
    """Do outputs have mean b and variance g squared, for a learned shift b and scale g?"""
    cases = (
        (
            "bn",
            "bn: each feature has mean b and variance g squared",
            largest_moment_error("bn", 0, per_feature=True),
        ),
        (
            "ln with one",
            "ln with one g and b for all features: each token has mean b and variance g squared",
            largest_moment_error("ln", 1, per_feature=False),
        ),
        (
            "ln with a g",
            "ln with a g and b for each feature: each token has the mean of b and the mean of g "
            "squared",
            largest_moment_error("ln", 1, per_feature=True),
        ),
    )
    return [
        finding(
            name,
            statement,
            f"the largest deviation of a mean or variance is {off:.2f}",
            holds=off < MOMENT_TOLERANCE,
            off=off,
        )
        for name, statement, off in cases
    ]


Draw = Callable[[], Float[Tensor, "D D"]]
"""A function that draws a square weight matrix."""


def growth_per_product(draw: Draw) -> float:
    """Return the factor by which vectors grow per matrix product: the geometric mean over eight."""
    start = x = draw_normal(64, WIDE)
    for _ in range(PRODUCTS):
        x = x @ draw()
    return float(x.norm() / start.norm()) ** (1 / PRODUCTS)


def growth_by_weights() -> dict[str, float]:
    """Return the growth per product for three distributions of weights."""
    generator = torch.Generator().manual_seed(SEED)

    def normal() -> Float[Tensor, "D D"]:
        return torch.randn(WIDE, WIDE, generator=generator, dtype=torch.float64)

    def default() -> Float[Tensor, "D D"]:
        """Draw as nn.Linear does: uniform between plus and minus 1 / sqrt(D)."""
        drawn = torch.rand(WIDE, WIDE, generator=generator, dtype=torch.float64)
        return (2 * drawn - 1) / math.sqrt(WIDE)

    bound = float(nn.Linear(WIDE, WIDE).weight.detach().abs().max())
    assert bound <= 1 / math.sqrt(WIDE)  # fails if torch's default changes
    return {
        "normal": growth_per_product(normal),
        "over width": growth_per_product(lambda: normal() / math.sqrt(WIDE)),
        "default": growth_per_product(default),
    }


@check("shape.growth")
def growth() -> list[CheckFinding]:
    """Does a vector grow each time it is multiplied by a matrix?

    The factor is the geometric mean over eight products of vectors of width 256.
    """
    factors = growth_by_weights()
    cases = (
        ("with weights", "weights of N(0, 1)", factors["normal"]),
        ("with weights over width", "weights of N(0, 1 / width)", factors["over width"]),
        ("with torch's", "torch's default weights", factors["default"]),
    )
    return [
        finding(
            name,
            f"with {weights} a vector grows with each matrix product",
            f"{factor:.2f} times each",
            holds=factor > GROWTH,
            factor=factor,
        )
        for name, weights, factor in cases
    ]
