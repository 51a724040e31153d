"""The 999 of article 3: what becomes of it and of its neighbours, and of the softmax over them."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claims.evidence import Evidence
from normlab.inspect.checks.tools import SEED, piece
from normlab.inspect.question import question
from normlab.inspect.subject import run
from normlab.norms.make import make_norm

SENTENCE = ((10.0, 20.0, 999.0, -5.0), (0.1, 0.2, 0.1, 0.1), (5.0, 5.0, 5.0, 5.0))
"""Article 3's example "I love eat": three tokens with four features."""
SATURATED = 0.99


WIDTHS = (4, 16, 64, 256, 768)
DRAWS = 50
_ALIVE = 0.01  # the smallest slope of a softmax that still passes a gradient
_DEAD = 1e-6


@question("outlier.softmax", of="claim")
def softmax() -> list[Evidence]:
    """Does an outlier of 999 saturate the softmax, in the article's example as it stands?"""
    bare, ln = (attended(norm_of_sentence(name)) for name in ("none", "ln"))
    value = float(norm_of_sentence("ln")[0, 2])
    without = "without a norm the token of the 999 saturates the softmax, whose gradient is 0"
    saturated = f"largest logit {bare.logit:,.0f}, slope {bare.slope[0]:.3g}"
    down = "ln brings the 999 into -1 to 1"
    alive = (
        f"999 becomes {value:.2f}; the largest logit is {ln.logit:.2f}, the root of the width, as "
        f"that of any token without projections (slope {ln.slope[0]:.3f})"
    )
    dead = float(bare.slope[0]) < _DEAD
    return [
        piece(without, saturated, holds=dead, logit=bare.logit, slope=float(bare.slope[0])),
        piece(
            down,
            alive,
            holds=abs(value) <= 1,
            logit=ln.logit,
            slope=float(ln.slope[0]),
            value=value,
        ),
    ]


@question("outlier.width", of="claim")
def width() -> list[Evidence]:
    """Does the softmax saturate at widths of 4 to 768, with random query and key projections?

    The first four features are the article's; 1 and 0.1 times normal values fill up the first two
    tokens, 5 the third. Projections are drawn from N(0, 1 / width), so that they keep the size of a
    token. A row is saturated if its largest weight is above 0.99. Means are over 50 draws.
    """
    found = {name: [projected(name, each) for each in WIDTHS] for name in ("none", "ln")}
    widths = f"at widths {WIDTHS[0]} to {WIDTHS[-1]}, with random query and key projections"
    saturated = {name: [float(each.saturated.mean()) for each in f] for name, f in found.items()}
    slopes = [float(each.slope.mean()) for each in found["ln"]]
    dead = [float(each.saturated[0]) for each in found["none"]]
    least, most = min(saturated["none"]), max(saturated["none"])
    bare = f"{least:.0%} to {most:.0%} of rows saturate, of the 999's own {min(dead):.0%} or more"
    alive = (
        f"no row saturates; the mean slope is {min(slopes):.2f} to {max(slopes):.2f}"
        if not any(saturated["ln"])
        else f"{max(saturated['ln']):.1%} of rows saturate; the mean slope is {min(slopes):.2g}"
    )
    numbers = {
        f"{name}_{key}_{size}": value
        for name, sizes in found.items()
        for size, each in zip(WIDTHS, sizes, strict=True)
        for key, value in (("slope", each.slope.mean()), ("saturated", each.saturated.mean()))
    }
    numbers = {name: float(value) for name, value in numbers.items()}
    without = f"without a norm half of the rows or more saturate {widths}"
    holds = not any(saturated["ln"]) and min(slopes) > _ALIVE
    of = {name: {k: v for k, v in numbers.items() if k.startswith(name)} for name in found}
    return [
        piece(without, bare, holds=least >= 0.5, **of["none"]),
        piece(f"ln keeps the gradient of the softmax {widths}", alive, holds=holds, **of["ln"]),
    ]


class Attended(NamedTuple):
    """The attention of a sentence to itself: its largest logit, and values of each row.

    `slope` is 1 - sum p^2, which is 0 if one weight is 1; `saturated` the share of draws in which
    the largest weight is above 0.99.
    """

    logit: float
    slope: Float[Tensor, " P"]
    saturated: Float[Tensor, " P"]


def attended(
    query: Float[Tensor, "*draws P D"], key: Float[Tensor, "*draws P D"] | None = None
) -> Attended:
    """Return attention, softmax(q k' / sqrt(D)), averaged over draws; keys default to queries."""
    key = query if key is None else key
    logits = query @ key.mT / math.sqrt(query.shape[-1])
    weights = logits.softmax(-1).flatten(0, -3) if logits.dim() > 2 else logits.softmax(-1)[None]
    slope = 1 - weights.square().sum(-1)
    saturated = (weights.amax(-1) > SATURATED).double()
    return Attended(float(logits.abs().max()), slope.mean(0), saturated.mean(0))


def sentence(width: int = 4) -> Float[Tensor, "3 D"]:
    """Return article 3's sentence, filled up to a width."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(3, width, generator=generator, dtype=torch.float64)
    x = x * torch.tensor([[1.0], [0.1], [0.0]], dtype=torch.float64)
    x[2] = SENTENCE[2][0]
    x[:, : len(SENTENCE[0])] = torch.tensor(SENTENCE, dtype=torch.float64)
    return x


def norm_of_sentence(name: str, width: int = 4) -> Float[Tensor, "3 D"]:
    """Return a new norm's output for the sentence, alone in its batch."""
    return run(make_norm(name, width).double(), sentence(width)[None])[0]


def projected(name: str, width: int) -> Attended:
    """Return the attention over a norm's output with randomly drawn projections."""
    y = norm_of_sentence(name, width)
    generator = torch.Generator().manual_seed(SEED)
    pairs = []
    for _ in range(DRAWS):
        maps = torch.randn(2, width, width, generator=generator, dtype=torch.float64)
        pairs.append(y @ maps / math.sqrt(width))
    query, key = torch.stack(pairs, dim=1)
    return attended(query, key)
