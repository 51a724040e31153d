"""Checks of how a norm's output is distributed, and of how vectors grow without norms."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.claim_checks.check import check, finding
from normlab.claim_checks.inputs import SEED, WIDTH, draw_normal, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.inspection.norm.norm_calls import run

PRODUCTS, WIDE = 8, 256


@check("shape.kept")
def distribution() -> list[CheckFinding]:
    """Is a norm's output a standard normal distribution?

    Each feature of 4,096 tokens has an exponential distribution with its own scale.
    """
    generator = torch.Generator().manual_seed(SEED)
    x = torch.empty(64, 64, WIDTH, dtype=torch.float64).exponential_(generator=generator)
    x = x * torch.linspace(0.5, 2, WIDTH, dtype=torch.float64)
    y = run(new_norm("bn"), x)
    flat = y.flatten(0, 1)
    mean, var = float(flat.mean(0).abs().max()), float((flat.var(0, correction=0) - 1).abs().max())
    before, after = (float(skewness(each.flatten(0, 1)).mean()) for each in (x, y))
    return [
        finding(
            "bn gives a mean",
            "bn gives a mean of 0 and a variance of 1",
            f"features are within {mean:.3f} of mean 0 and within {var:.3f} of variance 1",
            holds=max(mean, var) < 1e-3,
            mean=mean,
            var=var,
        ),
        finding(
            "bn gives a standard",
            "bn gives a standard normal distribution",
            f"the skewness of its features is {after:.2f}, and {before:.2f} before the norm; a "
            "normal distribution's is 0",
            holds=abs(after) < 0.1,
            before=before,
            after=after,
        ),
    ]


@check("shape.rms")
def rms_moments() -> list[CheckFinding]:
    """What are the mean and variance of tokens after RMSNorm if their mean was not 0?"""
    x = draw_normal(64, 64, WIDE) + 3
    y, by_ln = (run(new_norm(name, WIDE), x) for name in ("rms", "ln"))
    mean, var = float(y.mean(-1).mean()), float(y.var(-1, correction=0).mean())
    square, centered = float(y.square().mean()), float(by_ln.mean(-1).abs().max())
    return [
        finding(
            "rms subtracts",
            "rms subtracts no mean",
            f"tokens whose mean is 3 standard deviations have a mean of {mean:.2f} after rms, and "
            f"of {centered:.2f} after ln",
            holds=mean > 0.5 and centered < 0.005,
            mean=mean,
            by_ln=centered,
        ),
        finding(
            "rms gives",
            "rms gives a variance of 1",
            f"the mean square is {square:.2f}, and the variance {var:.2f}",
            holds=abs(var - 1) < 0.01,
            square=square,
            var=var,
        ),
    ]


def skewness(x: Float[Tensor, "N D"]) -> Float[Tensor, " D"]:
    """Return E (x - mean)^3 / sd^3 of each column."""
    centered = x - x.mean(0)
    return centered.pow(3).mean(0) / centered.square().mean(0).pow(1.5)


@check("shape.moments")
def output_moments() -> list[CheckFinding]:
    """Do outputs have mean b and variance g squared, for a learned shift b and scale g?"""
    x = draw_normal(16, 16, WIDTH)
    gain, shift = 0.5 + draw_normal(WIDTH, seed=SEED + 1).abs(), draw_normal(WIDTH, seed=SEED + 2)

    def gap(name: str, axis: int, *, each: bool) -> float:
        norm = new_norm(name)
        g, b = (gain, shift) if each else (gain[:1], shift[:1])
        norm.weight.data.copy_(g.expand(WIDTH))
        norm.bias.data.copy_(b.expand(WIDTH))
        y = run(norm, x).flatten(0, 1)
        want_mean, want_var = (b, g.square()) if axis == 0 else (b.mean(), g.square().mean())
        means = (y.mean(axis) - want_mean).abs()
        return max(float(means.max()), float((y.var(axis, correction=0) - want_var).abs().max()))

    cases = (
        ("bn", "bn: each feature has mean b and variance g squared", gap("bn", 0, each=True)),
        (
            "ln with one",
            "ln with one g and b for all features: each token has mean b and variance g squared",
            gap("ln", 1, each=False),
        ),
        (
            "ln with a g",
            "ln with a g and b for each feature: each token has the mean of b and the mean of g "
            "squared",
            gap("ln", 1, each=True),
        ),
    )
    return [
        finding(
            name,
            statement,
            f"the largest deviation of a mean or variance is {off:.2f}",
            holds=off < 1e-3,
            off=off,
        )
        for name, statement, off in cases
    ]


@check("shape.growth")
def growth() -> list[CheckFinding]:
    """Does a vector grow each time it is multiplied by a matrix?

    The factor is the geometric mean over eight products of vectors of width 256.
    """
    generator = torch.Generator().manual_seed(SEED)

    def default(n: int) -> Float[Tensor, "D D"]:
        """Draw as nn.Linear does: uniform between plus and minus 1 / sqrt(D)."""
        drawn = torch.rand(n, n, generator=generator, dtype=torch.float64)
        return (2 * drawn - 1) / math.sqrt(n)

    def normal(n: int) -> Float[Tensor, "D D"]:
        return torch.randn(n, n, generator=generator, dtype=torch.float64)

    weights = (
        ("with weights", "weights of N(0, 1)", normal),
        (
            "with weights over width",
            "weights of N(0, 1 / width)",
            lambda n: normal(n) / math.sqrt(n),
        ),
        ("with torch's", "torch's default weights", default),
    )
    bound = float(nn.Linear(WIDE, WIDE).weight.detach().abs().max())
    assert bound <= 1 / math.sqrt(WIDE)  # fails if torch's default changes
    findings = []
    for name, in_words, drawn in weights:
        start = x = draw_normal(64, WIDE)
        for _ in range(PRODUCTS):
            x = x @ drawn(WIDE)
        factor = float(x.norm() / start.norm()) ** (1 / PRODUCTS)
        statement = f"with {in_words} a vector grows with each matrix product"
        findings.append(
            finding(name, statement, f"{factor:.2f} times each", holds=factor > 1.05, factor=factor)
        )
    return findings
