"""Measures attention over the words of article 3, one of which has the 999."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claim_checks.inputs import LENGTH, SEED, WIDTH, draw_normal, new_norm
from normlab.inspection.examples.articles import WORD_WIDTHS, WORDS_WITH_999
from normlab.inspection.model.outlier import SATURATED
from normlab.inspection.norm.norm_calls import run
from normlab.norms.make import make_norm

DRAWS = 50


def words_of_width(width: int = 4) -> Float[Tensor, "3 D"]:
    """Return the three words of article 3, extended to `width` features.

    The added features are drawn from a standard normal distribution in the first word, are 0.1
    times such values in the second, and are all 5 in the third.
    """
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(3, width, generator=generator, dtype=torch.float64)
    x = x * torch.tensor([[1.0], [0.1], [0.0]], dtype=torch.float64)
    x[2] = WORDS_WITH_999[2][0]
    x[:, : len(WORDS_WITH_999[0])] = torch.tensor(WORDS_WITH_999, dtype=torch.float64)
    return x


def words_after(name: str, width: int = 4) -> Float[Tensor, "3 D"]:
    """Return the output of a new norm for a batch that has only the words."""
    return run(make_norm(name, width).double(), words_of_width(width)[None])[0]


class Attended(NamedTuple):
    """The attention within a sentence: the largest size of a logit, and two values for each row.

    With the weights p of a row, `slope` is 1 - sum p^2, averaged over draws; it is 0 if one weight
    is 1. `saturated` is the share of draws in which the row's largest weight is above 0.99.
    """

    logit: float
    slope: Float[Tensor, " P"]
    saturated: Float[Tensor, " P"]


def attended(
    query: Float[Tensor, "*draws P D"], key: Float[Tensor, "*draws P D"] | None = None
) -> Attended:
    """Measure the attention softmax(q k' / sqrt(D)), averaged over draws.

    If `key` is None, the queries are also the keys.
    """
    key = query if key is None else key
    logits = query @ key.mT / math.sqrt(query.shape[-1])
    weights = logits.softmax(-1).flatten(0, -3) if logits.dim() > 2 else logits.softmax(-1)[None]
    slope = 1 - weights.square().sum(-1)
    saturated = (weights.amax(-1) > SATURATED).double()
    return Attended(float(logits.abs().max()), slope.mean(0), saturated.mean(0))


def projected_attention(name: str, width: int) -> Attended:
    """Return the attention over a norm's output for the words, with random projections."""
    y = words_after(name, width)
    generator = torch.Generator().manual_seed(SEED)
    pairs = []
    for _ in range(DRAWS):
        maps = torch.randn(2, width, width, generator=generator, dtype=torch.float64)
        pairs.append(y @ maps / math.sqrt(width))
    query, key = torch.stack(pairs, dim=1)
    return attended(query, key)


class WordAttention(NamedTuple):
    """The standard deviation of logits, and the mean of the rows' largest weights."""

    logits: float
    share: float


def attention_of(name: str, factor: float) -> WordAttention:
    """Return the attention over a norm's output for random tokens, which are scaled by `factor`."""
    x, maps = (
        draw_normal(1, LENGTH, WIDTH),
        draw_normal(2, WIDTH, WIDTH, seed=SEED + 1) / math.sqrt(WIDTH),
    )
    y = run(new_norm(name), factor * x)[0]
    logits = (y @ maps[0]) @ (y @ maps[1]).T / math.sqrt(WIDTH)
    return WordAttention(float(logits.std()), float(logits.softmax(-1).amax(-1).mean()))


class BoundTrial(NamedTuple):
    """The number of tokens tried, and the number whose output exceeds sqrt(D - 1)."""

    tokens: int
    exceeding: int


def tokens_above_the_bound() -> BoundTrial:
    """Test the bound on layer norm's output with tokens whose values are Cauchy-distributed."""
    generator = torch.Generator().manual_seed(SEED)
    number, exceeding = 4096, 0
    for width in WORD_WIDTHS:
        wild = torch.empty(1, number, width, dtype=torch.float64).cauchy_(generator=generator)
        most = run(make_norm("ln", width).double(), wild).abs().amax(-1)
        exceeding += int((most > math.sqrt(width - 1)).sum())
    return BoundTrial(number * len(WORD_WIDTHS), exceeding)
