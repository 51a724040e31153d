"""Checks of article 3's 999: what layer norm turns it into, and how it affects attention."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claim_checks.check import check, finding, values_in_words
from normlab.claim_checks.word_attention import (
    attended,
    attention_of,
    projected_attention,
    tokens_above_the_bound,
    words_after,
    words_of_width,
)
from normlab.claims.evidence import CheckFinding
from normlab.findings.relative_change import rms
from normlab.inspection.examples.articles import WORD_WIDTHS
from normlab.inspection.norm.norm_calls import run
from normlab.norms.make import make_norm

PASSES_GRADIENT = 0.01  # the smallest slope of a softmax that still passes a gradient
NO_GRADIENT = 1e-6
UNIT_SIZE = 0.01  # the largest deviation of a root mean square from 1
A_SHARE = 0.1  # the smallest attention weight that counts as a share
A_MILLION = (9e5, 1.1e6)
FEW_POINTS = 1e3
STRONG_CHANGE, NO_CHANGE = 0.25, 1e-3  # of an attention weight
SMALL_LOGITS, LARGE_LOGITS = (1.1, 1.2, 0.9), (1000.0, 5.0, 2.0)


class NormalizedWords(NamedTuple):
    """The three words of article 3 after layer norm.

    `without_eps` is the third word, whose features are equal, after layer norm without eps.
    """

    first: Float[Tensor, " 4"]
    second: Float[Tensor, " 4"]
    third: Float[Tensor, " 4"]
    without_eps: Float[Tensor, " 4"]

    @property
    def lead_of_999(self) -> float:
        """The distance of the 999 from the next largest value of its word."""
        return float(self.first[2] - self.first[[0, 1, 3]].max())


def normalized_words() -> NormalizedWords:
    """Apply layer norm to the words, and layer norm without eps to the third one."""
    without_eps = run(make_norm("ln", 4, eps=0.0).double(), words_of_width()[None, 2:])[0, 0]
    first, second, third = words_after("ln")
    return NormalizedWords(first, second, third, without_eps)


def has_unit_size(word: Float[Tensor, " D"]) -> bool:
    """Return whether the root mean square of a word is 1, up to the effect of eps."""
    return abs(rms(word) - 1) < UNIT_SIZE


@check("outlier.words")
def words() -> list[CheckFinding]:
    """What does layer norm turn the three words of article 3 into?"""
    after = normalized_words()
    gone, not_a_number = not after.third.any(), bool(after.without_eps.isnan().all())
    return [
        finding(
            "ln brings",
            "ln brings 10 20 999 \u22125 to a mean of 0 and a variance of 1",
            f"it becomes {values_in_words(after.first)}, with the 999 {after.lead_of_999:.2f} "
            "above the next value",
            holds=has_unit_size(after.first),
        ),
        finding(
            "ln stretches",
            "ln stretches 0.1 0.2 0.1 0.1 to a normal range",
            f"it becomes {values_in_words(after.second)}: its 0.2 ends at "
            f"{float(after.second[1]):.2f}, and the 999 at {float(after.first[2]):.2f}",
            holds=has_unit_size(after.second),
        ),
        finding(
            "ln keeps",
            "ln keeps 5 5 5 5 distinct from other words",
            f"it becomes {values_in_words(after.third)}"
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


class Votes(NamedTuple):
    """The dot products of the three words of article 3.

    `first` is the dot product of the first word with itself, `others` the largest one among the
    other two words, and `largest` the largest absolute value of all.
    """

    first: float
    others: float
    largest: float


def votes_after(norm: str) -> Votes:
    """Return the dot products of a norm's output for the words."""
    products = words_after(norm) @ words_after(norm).T
    others = float(products[1:, 1:].max())
    return Votes(float(products[0, 0]), others, float(products.abs().max()))


@check("outlier.votes")
def votes() -> list[CheckFinding]:
    """How many points does each word of article 3 give to itself and to the others?"""
    bare, ln = votes_after("none"), votes_after("ln")
    features = words_of_width().shape[1]
    return [
        finding(
            "without",
            "without a norm the word with the 999 gives itself a million points, and others few",
            f"{bare.first:,.0f} points for itself; the others give each other and themselves "
            f"{bare.others:.0f} at most",
            holds=A_MILLION[0] < bare.first < A_MILLION[1] and bare.others < FEW_POINTS,
            votes=round(bare.first),  # a whole number, like the words' features
            others=bare.others,
        ),
        finding(
            "with ln",
            "with ln no word has more votes than the number of features",
            f"a word gives {ln.largest:.2f} points at most, with {features} features",
            holds=ln.largest <= features,
            votes=ln.largest,
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
            holds=slope < NO_GRADIENT,
            logit=round(bare.logit),  # half of a whole number of votes
            slope=slope,
        )
    ]


class SoftmaxOf(NamedTuple):
    """The softmax of some logits, and its largest slope p (1 - p)."""

    weights: Float[Tensor, " n"]
    slope: float


def softmax_of(logits: Sequence[float]) -> SoftmaxOf:
    """Return the softmax of the logits and its largest slope."""
    p = torch.tensor(logits, dtype=torch.float64).softmax(-1)
    return SoftmaxOf(p, float((p * (1 - p)).max()))


@check("outlier.values")
def softmax_values() -> list[CheckFinding]:
    """What is the softmax of the article's small and large logits?"""
    small, large = softmax_of(SMALL_LOGITS), softmax_of(LARGE_LOGITS)
    return [
        finding(
            "small logits",
            "logits of 1.1, 1.2 and 0.9 leave each word a share",
            f"shares {values_in_words(small.weights, 3)}, largest slope {small.slope:.3f}",
            holds=float(small.weights.min()) > A_SHARE,
            slope=small.slope,
        ),
        finding(
            "large logits",
            "logits of 1000, 5 and 2 give one word everything, and no gradient",
            f"shares {values_in_words(large.weights, 3)}, largest slope {large.slope:.3g}",
            holds=float(large.weights.max()) == 1 and large.slope == 0,
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
            holds=bare_tenfold.share - bare.share > STRONG_CHANGE,
            before=bare.share,
            after=bare_tenfold.share,
        ),
        finding(
            "with ln",
            "with ln attention does not depend on the scale of its input",
            f"the largest weight of a row goes from {ln.share:.3f} to {ln_tenfold.share:.3f}",
            holds=abs(ln.share - ln_tenfold.share) < NO_CHANGE,
            before=ln.share,
            after=ln_tenfold.share,
        ),
    ]


class SaturationByWidth(NamedTuple):
    """How saturated attention over the words is at each of `WORD_WIDTHS`, averaged over rows.

    `slopes` are the slopes of the softmax, and `saturated` the shares of saturated rows. `of_999`
    is the smallest share of saturated rows of the word with the 999.
    """

    slopes: list[float]
    saturated: list[float]
    of_999: float

    def numbers(self, name: str) -> dict[str, float]:
        """Return the slope and the share of saturated rows at each width, for a finding."""
        by_width = zip(WORD_WIDTHS, self.slopes, self.saturated, strict=True)
        return {
            f"{name}_{key}_{width}": value
            for width, slope, saturated in by_width
            for key, value in (("slope", slope), ("saturated", saturated))
        }


def saturation_by_width(norm: str) -> SaturationByWidth:
    """Measure attention over a norm's output for the words, with random projections."""
    by_width = [projected_attention(norm, width) for width in WORD_WIDTHS]
    return SaturationByWidth(
        [float(each.slope.mean()) for each in by_width],
        [float(each.saturated.mean()) for each in by_width],
        min(float(each.saturated[0]) for each in by_width),
    )


@check("outlier.width")
def width() -> list[CheckFinding]:
    """Does the softmax saturate at widths of 4 to 768, with random query and key projections?

    The first four features are those of the article. The others are normal values in the first
    token, 0.1 times normal values in the second, and 5 in the third. Projections are drawn from
    N(0, 1 / width), so that they preserve the size of a token. A row is saturated if its largest
    weight is above 0.99. Means are over 50 draws.
    """
    bare, ln = saturation_by_width("none"), saturation_by_width("ln")
    widths = (
        f"at widths {WORD_WIDTHS[0]} to {WORD_WIDTHS[-1]}, with random query and key projections"
    )
    return [
        finding(
            "without a norm",
            f"without a norm half of the rows or more saturate {widths}",
            f"{min(bare.saturated):.0%} to {max(bare.saturated):.0%} of rows saturate, and "
            f"{bare.of_999:.0%} or more of the rows of the 999",
            holds=min(bare.saturated) >= 0.5,
            **bare.numbers("none"),
        ),
        finding(
            "ln keeps",
            f"ln keeps the gradient of the softmax {widths}",
            f"{max(ln.saturated):.1%} of rows saturate; the mean slope is {min(ln.slopes):.2g}"
            if any(ln.saturated)
            else f"no row saturates; the mean slope is {min(ln.slopes):.2f} to "
            f"{max(ln.slopes):.2f}",
            holds=not any(ln.saturated) and min(ln.slopes) > PASSES_GRADIENT,
            **ln.numbers("ln"),
        ),
    ]
