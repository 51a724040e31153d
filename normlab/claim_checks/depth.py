"""Checks of gradients in a deep model before any training."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.claim_checks.check import check, finding
from normlab.claim_checks.inputs import SEED, draw_normal, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.norms.tokens import Tokens
from normlab.placements.base import NormResidual
from normlab.placements.post import PostResidual
from normlab.placements.pre import PreResidual

DEPTH, WIDTH, HEADS, SENTENCES, LENGTH = 100, 32, 4, 4, 8
VANISHES = 0.01
"""The smallest ratio of gradient norms, between the lowest and the highest layer, that is steady.

Below it, the gradient vanishes. If the inverse ratio is below it, the gradient explodes.
"""
LARGEST = 1e6
"""The largest ratio that is reported.

Without a norm, larger ratios are those of a chaotic network, and depend on a machine's rounding.
"""


class AttentionSublayer(nn.Module):
    """Self-attention with torch's default weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Float[Tensor, "N L D"]) -> Float[Tensor, "N L D"]:
        return self.attention(x, x, x, need_weights=False)[0]


def lowest_over_highest(kind: type[NormResidual], norm: str) -> float:
    """Return the gradient norm in the lowest of 100 layers, divided by that in the highest.

    Each layer has attention and a feed-forward block with torch's default weights. The loss is the
    cross-entropy of a linear output layer.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layers = []
        for _ in range(DEPTH):
            feed_forward = nn.Sequential(
                nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)
            )
            layers.append([AttentionSublayer().double(), feed_forward.double()])
        output = nn.Linear(WIDTH, WIDTH).double()
    x, residual = draw_normal(SENTENCES, LENGTH, WIDTH), kind(new_norm(norm, WIDTH), 0.0)
    for layer in layers:
        for sublayer in layer:
            x = residual(x, Tokens(), sublayer)
    if kind is PreResidual:
        x = new_norm(norm, WIDTH)(x)
    targets = torch.arange(SENTENCES * LENGTH) % WIDTH
    nn.functional.cross_entropy(output(x).flatten(0, 1), targets).backward()
    lowest, *_, highest = (
        torch.cat([p.grad.flatten() for part in layer for p in part.parameters()]).norm()
        for layer in layers
    )
    return float(lowest / highest)


@check("depth.gradients")
def gradients_through_depth() -> list[CheckFinding]:
    """Do gradients vanish or explode on the way down 100 layers, before any training?"""
    ratios = {
        "post-norm": lowest_over_highest(PostResidual, "ln"),
        "pre-norm": lowest_over_highest(PreResidual, "ln"),
        "no norm": lowest_over_highest(PreResidual, "none"),
        "bn": lowest_over_highest(PreResidual, "bn"),
    }
    steady = {name: VANISHES <= ratio <= 1 / VANISHES for name, ratio in ratios.items()}

    def evidence(name: str, statement: str, *, holds: bool) -> CheckFinding:
        ratio = min(ratios[name], LARGEST)
        times = f"more than {LARGEST:,.0f}" if ratio == LARGEST else f"{ratio:.3g}"
        answer = f"the lowest layer has {times} times the gradient of the highest"
        return finding(name, statement, answer, holds=holds, ratio=ratio)

    return [
        evidence(
            "post-norm",
            "ln after the sums (post-norm): the first gradient vanishes over 100 layers",
            holds=ratios["post-norm"] < VANISHES,
        ),
        evidence(
            "pre-norm",
            "ln before the sub-layers (pre-norm): the first gradient neither vanishes nor explodes "
            "over 100 layers",
            holds=steady["pre-norm"],
        ),
        evidence(
            "no norm",
            "without a norm the first gradient explodes over 100 layers",
            holds=ratios["no norm"] > 1 / VANISHES,
        ),
        evidence(
            "bn",
            "bn before the sub-layers: the first gradient vanishes or explodes over 100 layers",
            holds=not steady["bn"],
        ),
    ]
