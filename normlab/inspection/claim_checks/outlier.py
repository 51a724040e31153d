"""The 999 of article 3: what layer norm turns it and its neighbours into."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claims.evidence import CheckFinding
from normlab.inspection.claim_checks.check import check, finding, in_words
from normlab.inspection.claim_checks.inputs import SEED
from normlab.inspection.examples.articles import WORD_WIDTHS, WORDS_WITH_999
from normlab.inspection.norm.norm_calls import run
from normlab.norms.make import make_norm


def words_of_width(width: int = 4) -> Float[Tensor, "3 D"]:
    """Return article 3's words, extended by normal values, 0.1 times these, and 5."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(3, width, generator=generator, dtype=torch.float64)
    x = x * torch.tensor([[1.0], [0.1], [0.0]], dtype=torch.float64)
    x[2] = WORDS_WITH_999[2][0]
    x[:, : len(WORDS_WITH_999[0])] = torch.tensor(WORDS_WITH_999, dtype=torch.float64)
    return x


def words_after(name: str, width: int = 4) -> Float[Tensor, "3 D"]:
    """Return a new norm's output for the words, alone in their batch."""
    return run(make_norm(name, width).double(), words_of_width(width)[None])[0]


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
            f"it becomes {in_words(first)}, with the 999 {above:.2f} above the next value",
            holds=abs(rms[0] - 1) < 0.01,
        ),
        finding(
            "ln stretches",
            "ln stretches 0.1 0.2 0.1 0.1 to a normal range",
            f"it becomes {in_words(second)}: its 0.2 ends at {float(second[1]):.2f}, and the 999 "
            f"at {float(first[2]):.2f}",
            holds=abs(rms[1] - 1) < 0.01,
        ),
        finding(
            "ln keeps",
            "ln keeps 5 5 5 5 distinct from other words",
            f"it becomes {in_words(third)}"
            + (": the word disappears" if gone else "")
            + (" (without eps it is not a number)" if not_a_number else ""),
            holds=not gone,
        ),
    ]


@check("outlier.range")
def value_range() -> list[CheckFinding]:
    """In which range are the values of layer norm?

    Of D values with mean 0 and variance 1, none exceeds sqrt(D - 1), the value of one outlier among
    D - 1 equal values. The bound is tried on tokens with Cauchy-distributed values.
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


def tokens_above_the_bound() -> tuple[int, int]:
    """Return how many tokens were tried, and for how many an output exceeds sqrt(D - 1)."""
    generator = torch.Generator().manual_seed(SEED)
    number, exceeding = 4096, 0
    for width in WORD_WIDTHS:
        wild = torch.empty(1, number, width, dtype=torch.float64).cauchy_(generator=generator)
        most = run(make_norm("ln", width).double(), wild).abs().amax(-1)
        exceeding += int((most > math.sqrt(width - 1)).sum())
    return number * len(WORD_WIDTHS), exceeding


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
