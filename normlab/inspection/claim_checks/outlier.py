"""The 999 of article 3: what norms do to it, to its neighbours, and to the softmax over them."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claims.evidence import CheckFinding
from normlab.inspection.claim_checks.check import check, finding, in_words
from normlab.inspection.claim_checks.inputs import LENGTH, SEED, WIDTH, draw, new_norm
from normlab.inspection.examples.articles import WORD_WIDTHS, WORDS_WITH_999
from normlab.inspection.norm.norm_calls import run
from normlab.norms.make import make_norm

SATURATED = 0.99
DRAWS = 50
_ALIVE = 0.01  # the smallest slope of a softmax that still passes a gradient
_DEAD = 1e-6


@check("outlier.softmax", "without a norm")
def softmax() -> list[CheckFinding]:
    """Does an outlier of 999 saturate the softmax in the article's unchanged example?"""
    bare = attended(norm_of_sentence("none"))
    slope = float(bare.slope[0])
    statement = "without a norm the token with the 999 saturates the softmax, so its gradient is 0"
    answer = f"largest logit {bare.logit:,.0f}, slope {slope:.3g}"
    return [finding(statement, answer, holds=slope < _DEAD, logit=bare.logit, slope=slope)]


@check("outlier.words", "ln brings", "ln stretches", "ln keeps")
def words() -> list[CheckFinding]:
    """What does layer norm turn the three words of article 3 into?"""
    first, second, third = norm_of_sentence("ln")
    statements = (
        "ln brings 10 20 999 \u22125",
        "ln stretches 0.1 0.2 0.1 0.1",
        "ln keeps 5 5 5 5 distinct",
    )
    stretched = float(second.square().mean().sqrt())
    without = run(make_norm("ln", 4, eps=0.0).double(), sentence()[None, 2:])
    size, gone = float(first.square().mean().sqrt()), not third.any()
    above = float(first[2] - first[[0, 1, 3]].max())
    answers = (
        f"it becomes {in_words(first)}, with the 999 {above:.2f} above the next value",
        f"it becomes {in_words(second)}: its 0.2 ends at {float(second[1]):.2f}, and the 999 at "
        f"{float(first[2]):.2f}",
        f"it becomes {in_words(third)}"
        + (": the word disappears" if gone else "")
        + (" (without eps it is not a number)" if bool(without.isnan().all()) else ""),
    )
    return [
        finding(
            f"{statements[0]} to a mean of 0 and a variance of 1", answers[0], holds=_near_one(size)
        ),
        finding(f"{statements[1]} to a normal range", answers[1], holds=_near_one(stretched)),
        finding(f"{statements[2]} from other words", answers[2], holds=not gone),
    ]


def _near_one(value: float) -> bool:
    return abs(value - 1) < 0.01


@check("outlier.range", "ln's values", "ln brings")
def value_range() -> list[CheckFinding]:
    """In which range are the values of layer norm?

    Of D values with mean 0 and variance 1, none exceeds sqrt(D - 1), the value of one outlier among
    D - 1 equal values. The bound is tried on tokens with Cauchy-distributed values.
    """
    generator = torch.Generator().manual_seed(SEED)
    largest = {width: float(norm_of_sentence("ln", width)[0, 2]) for width in WORD_WIDTHS}
    exceeding = 0
    for width in WORD_WIDTHS:
        wild = torch.empty(1, 4096, width, dtype=torch.float64).cauchy_(generator=generator)
        most = run(make_norm("ln", width).double(), wild).abs().amax(-1)
        exceeding += int((most > math.sqrt(width - 1)).sum())
    first, last = WORD_WIDTHS[0], WORD_WIDTHS[-1]
    bound = (
        f"{exceeding} of {4096 * len(WORD_WIDTHS):,} tokens exceed the root of the width minus 1, "
        f"{math.sqrt(first - 1):.2f} at {first} features and {math.sqrt(last - 1):.1f} at {last}"
    )
    brought = (
        f"it becomes {largest[first]:.2f} at {first} features and {largest[last]:.1f} at {last}"
    )
    numbers = {f"of_{width}": value for width, value in largest.items()}
    small = max(largest.values()) <= 1
    return [
        finding("ln's values are in a range that the width determines", bound, holds=not exceeding),
        finding("ln brings the 999 into about \u22121 to 1", brought, holds=small, **numbers),
    ]


@check("outlier.votes", "without", "with ln")
def votes() -> list[CheckFinding]:
    """How many points does each word of article 3 give to itself and to the others?"""
    counts = {name: norm_of_sentence(name) @ norm_of_sentence(name).T for name in ("none", "ln")}
    bare, ln = counts["none"], counts["ln"]
    others = float(bare[1:, 1:].max())
    statement = "without a norm the word with the 999 gives itself a million points, and others few"
    answer = (
        f"{float(bare[0, 0]):,.0f} points for itself; the others give each other and themselves "
        f"{others:.0f} at most"
    )
    largest = float(ln.abs().max())
    even = f"a word gives {largest:.2f} points at most, with {len(WORDS_WITH_999[0])} features"
    return [
        finding(
            statement,
            answer,
            holds=9e5 < float(bare[0, 0]) < 1.1e6 and others < 1e3,
            votes=float(bare[0, 0]),
            others=others,
        ),
        finding(
            "with ln no word has more votes than the number of features",
            even,
            holds=largest <= 4,
            votes=largest,
        ),
    ]


@check("outlier.values", "small logits", "large logits")
def softmax_values() -> list[CheckFinding]:
    """What is the softmax of the article's small and large logits?"""
    small, large = (
        torch.tensor(logits, dtype=torch.float64).softmax(-1)
        for logits in ((1.1, 1.2, 0.9), (1000.0, 5.0, 2.0))
    )
    slopes = [float((p * (1 - p)).max()) for p in (small, large)]
    return [
        finding(
            "logits of 1.1, 1.2 and 0.9 leave each word a share",
            f"shares {in_words(small, 3)}, largest slope {slopes[0]:.3f}",
            holds=float(small.min()) > 0.1,
            slope=slopes[0],
        ),
        finding(
            "logits of 1000, 5 and 2 give one word everything, and no gradient",
            f"shares {in_words(large, 3)}, largest slope {slopes[1]:.3g}",
            holds=float(large.max()) == 1 and slopes[1] == 0,
        ),
    ]


@check("outlier.scale", "without", "with ln")
def scale() -> list[CheckFinding]:
    """What happens to attention if all tokens become ten times as large?

    One sentence of twelve tokens of width 64, with one draw of projections. A share is the largest
    weight of a row, averaged over rows.
    """
    x, maps = draw(1, LENGTH, WIDTH), draw(2, WIDTH, WIDTH, seed=SEED + 1) / math.sqrt(WIDTH)

    def shares(name: str, factor: float) -> tuple[float, float]:
        y = run(new_norm(name), factor * x)[0]
        logits = (y @ maps[0]) @ (y @ maps[1]).T / math.sqrt(WIDTH)
        return float(logits.std()), float(logits.softmax(-1).amax(-1).mean())

    (spread, share), (wide, sharp) = shares("none", 1.0), shares("none", 10.0)
    (_, before), (_, after) = shares("ln", 1.0), shares("ln", 10.0)
    return [
        finding(
            "without a norm attention depends strongly on the scale of its input",
            f"tokens ten times as large make logits {wide / spread:.0f} times as large; the "
            f"largest weight of a row goes from {share:.2f} to {sharp:.2f}",
            holds=sharp - share > 0.25,
            before=share,
            after=sharp,
        ),
        finding(
            "with ln attention does not depend on the scale of its input",
            f"the largest weight of a row goes from {before:.3f} to {after:.3f}",
            holds=abs(before - after) < 1e-3,
            before=before,
            after=after,
        ),
    ]


@check("outlier.width", "without a norm", "ln keeps")
def width() -> list[CheckFinding]:
    """Does the softmax saturate at widths of 4 to 768, with random query and key projections?

    The first four features are the article's; 1 and 0.1 times normal values fill up the first two
    tokens, 5 the third. Projections are drawn from N(0, 1 / width), so that they keep the size of a
    token. A row is saturated if its largest weight is above 0.99. Means are over 50 draws.
    """
    by_norm = {name: [projected(name, each) for each in WORD_WIDTHS] for name in ("none", "ln")}
    widths = (
        f"at widths {WORD_WIDTHS[0]} to {WORD_WIDTHS[-1]}, with random query and key projections"
    )
    saturated = {name: [float(each.saturated.mean()) for each in f] for name, f in by_norm.items()}
    slopes = [float(each.slope.mean()) for each in by_norm["ln"]]
    dead = [float(each.saturated[0]) for each in by_norm["none"]]
    least, most = min(saturated["none"]), max(saturated["none"])
    bare = f"{least:.0%} to {most:.0%} of rows saturate, {min(dead):.0%} or more of the 999's"
    alive = (
        f"no row saturates; the mean slope is {min(slopes):.2f} to {max(slopes):.2f}"
        if not any(saturated["ln"])
        else f"{max(saturated['ln']):.1%} of rows saturate; the mean slope is {min(slopes):.2g}"
    )
    numbers = {
        f"{name}_{key}_{size}": value
        for name, sizes in by_norm.items()
        for size, each in zip(WORD_WIDTHS, sizes, strict=True)
        for key, value in (("slope", each.slope.mean()), ("saturated", each.saturated.mean()))
    }
    numbers = {name: float(value) for name, value in numbers.items()}
    without = f"without a norm half of the rows or more saturate {widths}"
    holds = not any(saturated["ln"]) and min(slopes) > _ALIVE
    of = {name: {k: v for k, v in numbers.items() if k.startswith(name)} for name in by_norm}
    return [
        finding(without, bare, holds=least >= 0.5, **of["none"]),
        finding(f"ln keeps the gradient of the softmax {widths}", alive, holds=holds, **of["ln"]),
    ]


class Attended(NamedTuple):
    """A sentence's attention to itself: its largest logit, and the values of each row.

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
    """Return article 3's sentence, extended to a width."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(3, width, generator=generator, dtype=torch.float64)
    x = x * torch.tensor([[1.0], [0.1], [0.0]], dtype=torch.float64)
    x[2] = WORDS_WITH_999[2][0]
    x[:, : len(WORDS_WITH_999[0])] = torch.tensor(WORDS_WITH_999, dtype=torch.float64)
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
