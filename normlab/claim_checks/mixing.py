"""Checks of the axes along which the parts of a Transformer mix values."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.claim_checks.check import check, finding
from normlab.claim_checks.inputs import draw_normal, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.findings.relative_change import relative_change
from normlab.inspection.norm.norm_calls import call

SAMPLES, TOKENS, FEATURES = 2, 3, 4
ROUNDING = 1e-12  # of values near 1 in float64
INPUT_AXES = ("samples", "positions", "features")
TokenBlock = Float[Tensor, "N L D"]


def mixed(layer: Callable[[TokenBlock], TokenBlock]) -> set[str]:
    """Return the axes along which a layer mixes values, according to its Jacobian.

    Along these axes, outputs depend on inputs at other indices.
    """
    x = draw_normal(SAMPLES, TOKENS, FEATURES)
    jacobian = torch.autograd.functional.jacobian(layer, x)
    assert isinstance(jacobian, Tensor)
    moved = jacobian.abs() > ROUNDING
    axes = set()
    for to in moved.nonzero().tolist():
        axes |= {axis for axis, a, b in zip(INPUT_AXES, to[:3], to[3:], strict=True) if a != b}
    return axes


@check("mixing.axes")
def axes() -> list[CheckFinding]:
    """Along which axes do projections, attention and norms mix values?"""
    weight = draw_normal(FEATURES, FEATURES, seed=2)

    def attention(x: TokenBlock) -> TokenBlock:
        return (x @ x.mT / math.sqrt(FEATURES)).softmax(-1) @ x

    mixed_axes = {
        "projection": mixed(lambda x: x @ weight),
        "attention": mixed(attention),
        **{
            name: mixed(lambda x, name=name: call(new_norm(name, FEATURES), x))
            for name in ("ln", "bn")
        },
    }
    statements = (  # the finding's name, the layer, the statement, and the axes that it names
        (
            "the projections",
            "projection",
            "the projections to queries, keys and values mix only features",
            {"features"},
        ),
        (
            "information",
            "attention",
            "information flows only along the features, in attention too",
            {"features"},
        ),
        ("ln", "ln", "ln mixes along the features, as the projections do", {"features"}),
        ("bn", "bn", "bn mixes samples and positions", {"samples", "positions"}),
    )
    return [
        finding(
            name,
            text,
            f"{layer} mixes {', '.join(axis for axis in INPUT_AXES if axis in mixed_axes[layer])}",
            holds=mixed_axes[layer] == expected,
        )
        for name, layer, text, expected in statements
    ]


@check("mixing.kernel")
def kernel() -> list[CheckFinding]:
    """Do the values of a feature come from one kernel in a Transformer, as in a CNN?"""
    x, weight = draw_normal(2, 6, 8), draw_normal(5, 8, seed=2)
    linear = x @ weight.T
    convolution = nn.functional.conv1d(x.mT, weight[:, :, None]).mT
    off = relative_change(convolution, linear)
    return [
        finding(
            "CNN",
            "only in a CNN are all values of a channel made by one kernel",
            "a linear layer is a convolution with a kernel of one position, up to rounding"
            if off < ROUNDING
            else f"a linear layer and a convolution of size 1 differ by {off:.2g}",
            holds=off > ROUNDING,
        )
    ]
