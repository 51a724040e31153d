"""Checks that run the articles' code unchanged, and test a fix where it fails."""

import torch
from torch import Tensor, nn

from normlab.claim_checks.check import check, finding
from normlab.claims.evidence import CheckFinding

BATCH, LENGTH, HIDDEN = 2, 3, 4
ROUNDED_FLOAT32 = 1e-4  # smaller means of float32 values count as zero


def error_of(layer: nn.Module, x: Tensor) -> str:
    """Return the first line of the error that a layer raises, or "" if it runs."""
    try:
        layer(x)
    except (RuntimeError, ValueError) as raised:
        return str(raised).splitlines()[0]
    return ""


def shape_of(x: Tensor) -> str:
    """Return a shape as the articles print it, such as `[2, 3, 4]`."""
    return str([*x.shape])


@check("code.article_1")
def article_1() -> list[CheckFinding]:
    """Does the code in section 7 of article 1 run?"""
    x = torch.randn(BATCH, LENGTH, HIDDEN, generator=torch.Generator().manual_seed(1))
    y = nn.LayerNorm(HIDDEN)(x)
    permuted = x.permute(0, 2, 1)
    error = error_of(nn.BatchNorm1d(LENGTH), permuted)
    cure = error_of(nn.BatchNorm1d(HIDDEN), permuted)
    answer = (
        cure
        or f"BatchNorm1d(hidden_dim) runs and gives {shape_of(nn.BatchNorm1d(HIDDEN)(permuted))}"
    )
    return [
        finding(
            "LayerNorm",
            "LayerNorm(hidden_dim)(x) keeps the shape [2, 3, 4]",
            f"it gives {shape_of(y)}",
            holds=y.shape == x.shape,
        ),
        finding(
            "BatchNorm1d",
            "BatchNorm1d(seq_len)(x.permute(0, 2, 1)) runs",
            f"it raises: {error}; after the permutation the features are on axis 1"
            if error
            else "it runs",
            holds=not error,
        ),
        finding("the cure", "the fix is BatchNorm1d(hidden_dim)", answer, holds=not cure),
    ]


@check("code.article_3")
def article_3() -> list[CheckFinding]:
    """Does the code in section 9 of article 3 run, and what does its batch norm normalize over?"""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, LENGTH, HIDDEN, generator=generator)
    images = 3 + 2 * torch.randn(2, 64, 32, 32, generator=generator)
    with torch.no_grad():
        y, z = nn.LayerNorm(HIDDEN)(x), nn.BatchNorm2d(64)(images)
    off = float(z.mean((0, 2, 3)).abs().max())
    return [
        finding(
            "shapes",
            "LayerNorm(4) and BatchNorm2d(64) run and keep their shapes",
            f"they give {shape_of(y)} and {shape_of(z)}",
            holds=y.shape == x.shape and z.shape == images.shape,
        ),
        finding(
            "its batch norm",
            "BatchNorm2d(64) normalizes each channel over the batch",
            f"the means of channels over samples and pixels are within {off:.2f} of 0",
            holds=off < ROUNDED_FLOAT32,
        ),
    ]
