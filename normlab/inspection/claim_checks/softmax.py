"""Attention over the words of article 3 and over drawn tokens, with and without a norm."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claims.evidence import CheckFinding
from normlab.inspection.claim_checks.check import check, finding, in_words
from normlab.inspection.claim_checks.inputs import LENGTH, SEED, WIDTH, draw, new_norm
from normlab.inspection.claim_checks.outlier import words_after
from normlab.inspection.examples.articles import WORD_WIDTHS
from normlab.inspection.model.injected_outlier import SATURATED
from normlab.inspection.norm.norm_calls import run

DRAWS = 50
_ALIVE = 0.01  # the smallest slope of a softmax that still passes a gradient
_DEAD = 1e-6


class Attended(NamedTuple):
    """The attention within a sentence: its largest logit, and the values of each row.

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


def projected(name: str, width: int) -> Attended:
    """Return the attention over a norm's output with randomly drawn projections."""
    y = words_after(name, width)
    generator = torch.Generator().manual_seed(SEED)
    pairs = []
    for _ in range(DRAWS):
        maps = torch.randn(2, width, width, generator=generator, dtype=torch.float64)
        pairs.append(y @ maps / math.sqrt(width))
    query, key = torch.stack(pairs, dim=1)
    return attended(query, key)


@check("outlier.softmax")
def softmax() -> list[CheckFinding]:
    """Does an outlier of 999 saturate the softmax in the article's unchanged example?"""
    bare = attended(words_after("none"))
    slope = float(bare.slope[0])
    return [
        finding(
            "without a norm",
            "without a norm the token with the 999 saturates the softmax, so its gradient is 0",
            f"largest logit {bare.logit:,.0f}, slope {slope:.3g}",
            holds=slope < _DEAD,
            logit=bare.logit,
            slope=slope,
        )
    ]


@check("outlier.values")
def softmax_values() -> list[CheckFinding]:
    """What is the softmax of the article's small and large logits?"""
    small, large = (
        torch.tensor(logits, dtype=torch.float64).softmax(-1)
        for logits in ((1.1, 1.2, 0.9), (1000.0, 5.0, 2.0))
    )
    slopes = [float((p * (1 - p)).max()) for p in (small, large)]
    return [
        finding(
            "small logits",
            "logits of 1.1, 1.2 and 0.9 leave each word a share",
            f"shares {in_words(small, 3)}, largest slope {slopes[0]:.3f}",
            holds=float(small.min()) > 0.1,
            slope=slopes[0],
        ),
        finding(
            "large logits",
            "logits of 1000, 5 and 2 give one word everything, and no gradient",
            f"shares {in_words(large, 3)}, largest slope {slopes[1]:.3g}",
            holds=float(large.max()) == 1 and slopes[1] == 0,
        ),
    ]


class WordAttention(NamedTuple):
    """The standard deviation of logits, and the largest weight of a row, averaged over rows."""

    logits: float
    share: float


def attention_of(name: str, factor: float) -> WordAttention:
    """Return the attention over a norm's output for drawn tokens, `factor` times as large."""
    x, maps = draw(1, LENGTH, WIDTH), draw(2, WIDTH, WIDTH, seed=SEED + 1) / math.sqrt(WIDTH)
    y = run(new_norm(name), factor * x)[0]
    logits = (y @ maps[0]) @ (y @ maps[1]).T / math.sqrt(WIDTH)
    return WordAttention(float(logits.std()), float(logits.softmax(-1).amax(-1).mean()))


@check("outlier.scale")
def scale() -> list[CheckFinding]:
    """What happens to attention if all tokens become ten times as large?

    One sentence of twelve tokens of width 64, with one draw of projections. A share is the largest
    weight of a row, averaged over rows.
    """
    bare, bare_tenfold = attention_of("none", 1.0), attention_of("none", 10.0)
    ln, ln_tenfold = attention_of("ln", 1.0), attention_of("ln", 10.0)
    return [
        finding(
            "without",
            "without a norm attention depends strongly on the scale of its input",
            f"tokens ten times as large make logits {bare_tenfold.logits / bare.logits:.0f} times "
            f"as large; the largest weight of a row goes from {bare.share:.2f} to "
            f"{bare_tenfold.share:.2f}",
            holds=bare_tenfold.share - bare.share > 0.25,
            before=bare.share,
            after=bare_tenfold.share,
        ),
        finding(
            "with ln",
            "with ln attention does not depend on the scale of its input",
            f"the largest weight of a row goes from {ln.share:.3f} to {ln_tenfold.share:.3f}",
            holds=abs(ln.share - ln_tenfold.share) < 1e-3,
            before=ln.share,
            after=ln_tenfold.share,
        ),
    ]


@check("outlier.width")
def width() -> list[CheckFinding]:
    """Does the softmax saturate at widths of 4 to 768, with random query and key projections?

    The first four features are the article's; 1 and 0.1 times normal values fill up the first two
    tokens, 5 the third. Projections are drawn from N(0, 1 / width), so that they keep the size of a
    token. A row is saturated if its largest weight is above 0.99. Means are over 50 draws.
    """
    bare, ln = ([projected(name, each) for each in WORD_WIDTHS] for name in ("none", "ln"))
    saturated, saturated_by_ln = ([float(each.saturated.mean()) for each in f] for f in (bare, ln))
    of_999 = min(float(each.saturated[0]) for each in bare)
    slopes = [float(each.slope.mean()) for each in ln]
    alive = not any(saturated_by_ln)
    widths = (
        f"at widths {WORD_WIDTHS[0]} to {WORD_WIDTHS[-1]}, with random query and key projections"
    )
    return [
        finding(
            "without a norm",
            f"without a norm half of the rows or more saturate {widths}",
            f"{min(saturated):.0%} to {max(saturated):.0%} of rows saturate, and {of_999:.0%} or "
            "more of the rows of the 999",
            holds=min(saturated) >= 0.5,
            **_numbers("none", bare),
        ),
        finding(
            "ln keeps",
            f"ln keeps the gradient of the softmax {widths}",
            f"no row saturates; the mean slope is {min(slopes):.2f} to {max(slopes):.2f}"
            if alive
            else f"{max(saturated_by_ln):.1%} of rows saturate; the mean slope is "
            f"{min(slopes):.2g}",
            holds=alive and min(slopes) > _ALIVE,
            **_numbers("ln", ln),
        ),
    ]


def _numbers(name: str, by_width: list[Attended]) -> dict[str, float]:
    """Return a norm's mean slope and share of saturated rows at each width."""
    return {
        f"{name}_{key}_{size}": float(value.mean())
        for size, each in zip(WORD_WIDTHS, by_width, strict=True)
        for key, value in (("slope", each.slope), ("saturated", each.saturated))
    }
