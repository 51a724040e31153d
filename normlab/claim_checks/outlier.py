"""Checks of the 999 of article 3: what layer norm turns it into, and how it affects attention."""

import math

import torch

from normlab.claim_checks.check import check, finding, values_in_words
from normlab.claim_checks.word_attention import (
    Attended,
    attended,
    attention_of,
    projected_attention,
    tokens_above_the_bound,
    words_after,
    words_of_width,
)
from normlab.claims.evidence import CheckFinding
from normlab.inspection.examples.articles import WORD_WIDTHS
from normlab.inspection.norm.norm_calls import run
from normlab.norms.make import make_norm

_ALIVE = 0.01  # the smallest slope of a softmax that still passes a gradient
_DEAD = 1e-6


@check("outlier.words")
def words() -> list[CheckFinding]:
    """What does layer norm turn the three words of article 3 into?"""
    first, second, third = words_after("ln")
    without_eps = run(make_norm("ln", 4, eps=0.0).double(), words_of_width()[None, 2:])
    rms = [float(word.square().mean().sqrt()) for word in (first, second)]
    above = float(first[2] - first[[0, 1, 3]].max())
    gone, not_a_number = not third.any(), bool(without_eps.isnan().all())
    return [
        finding(
            "ln brings",
            "ln brings 10 20 999 \u22125 to a mean of 0 and a variance of 1",
            f"it becomes {values_in_words(first)}, with the 999 {above:.2f} above the next value",
            holds=abs(rms[0] - 1) < 0.01,
        ),
        finding(
            "ln stretches",
            "ln stretches 0.1 0.2 0.1 0.1 to a normal range",
            f"it becomes {values_in_words(second)}: its 0.2 ends at {float(second[1]):.2f}, and "
            f"the 999 at {float(first[2]):.2f}",
            holds=abs(rms[1] - 1) < 0.01,
        ),
        finding(
            "ln keeps",
            "ln keeps 5 5 5 5 distinct from other words",
            f"it becomes {values_in_words(third)}"
            + (": the word disappears" if gone else "")
            + (" (without eps it is not a number)" if not_a_number else ""),
            holds=not gone,
        ),
    ]


@check("outlier.range")
def value_range() -> list[CheckFinding]:
    """In which range are the values of layer norm?

    None of D values with mean 0 and variance 1 exceeds sqrt(D - 1), the value of an outlier among
    D - 1 equal values. The bound is tested on tokens with Cauchy-distributed values.
    """
    of_999 = {width: float(words_after("ln", width)[0, 2]) for width in WORD_WIDTHS}
    tokens, exceeding = tokens_above_the_bound()
    first, last = WORD_WIDTHS[0], WORD_WIDTHS[-1]
    return [
        finding(
            "ln's values",
            "ln's values are in a range that the width determines",
            f"{exceeding} of {tokens:,} tokens exceed the root of the width minus 1, "
            f"{math.sqrt(first - 1):.2f} at {first} features and {math.sqrt(last - 1):.1f} at "
            f"{last}",
            holds=not exceeding,
        ),
        finding(
            "ln brings",
            "ln brings the 999 into about \u22121 to 1",
            f"it becomes {of_999[first]:.2f} at {first} features and {of_999[last]:.1f} at {last}",
            holds=max(of_999.values()) <= 1,
            **{f"of_{width}": value for width, value in of_999.items()},
        ),
    ]


@check("outlier.votes")
def votes() -> list[CheckFinding]:
    """How many points does each word of article 3 give to itself and to the others?"""
    products = words_after("none") @ words_after("none").T
    first, others = float(products[0, 0]), float(products[1:, 1:].max())
    features = words_after("ln").shape[1]
    largest = float((words_after("ln") @ words_after("ln").T).abs().max())
    return [
        finding(
            "without",
            "without a norm the word with the 999 gives itself a million points, and others few",
            f"{first:,.0f} points for itself; the others give each other and themselves "
            f"{others:.0f} at most",
            holds=9e5 < first < 1.1e6 and others < 1e3,
            votes=first,
            others=others,
        ),
        finding(
            "with ln",
            "with ln no word has more votes than the number of features",
            f"a word gives {largest:.2f} points at most, with {features} features",
            holds=largest <= features,
            votes=largest,
        ),
    ]


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
            f"shares {values_in_words(small, 3)}, largest slope {slopes[0]:.3f}",
            holds=float(small.min()) > 0.1,
            slope=slopes[0],
        ),
        finding(
            "large logits",
            "logits of 1000, 5 and 2 give one word everything, and no gradient",
            f"shares {values_in_words(large, 3)}, largest slope {slopes[1]:.3g}",
            holds=float(large.max()) == 1 and slopes[1] == 0,
        ),
    ]


@check("outlier.scale")
def scale() -> list[CheckFinding]:
    """What happens to attention if all tokens become ten times as large?

    This uses a sentence of twelve tokens of width 64, with one draw of projections. A share is the
    largest weight of a row, averaged over rows.
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

    The first four features are those of the article. The others are normal values in the first
    token, 0.1 times normal values in the second, and 5 in the third. Projections are drawn from
    N(0, 1 / width), so that they preserve the size of a token. A row is saturated if its largest
    weight is above 0.99. Means are over 50 draws.
    """
    bare, ln = (
        [projected_attention(name, each) for each in WORD_WIDTHS] for name in ("none", "ln")
    )
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
    """Return the mean slope and the share of saturated rows with a norm, for each width."""
    return {
        f"{name}_{key}_{size}": float(value.mean())
        for size, each in zip(WORD_WIDTHS, by_width, strict=True)
        for key, value in (("slope", each.slope), ("saturated", each.saturated))
    }
