"""Scores from sums and counts.

Losses and hits are summed over batches and processes and divided once, at the end: a mean of means
would give a short batch the weight of a long one.
"""

import math
from collections.abc import Iterable

from normlab.records.record import Score


def mean_score(total: float, count: int, *, higher_is_better: bool) -> Score:
    """Divide a sum by its count, such as hits by tokens (accuracy) or nats by tokens (loss)."""
    return Score(total / _positive(count), higher_is_better, count)


def perplexity(total_nll: float, count: int) -> Score:
    """Turn a summed negative log-likelihood in nats into a perplexity, exp(nll / tokens)."""
    mean = total_nll / _positive(count)
    try:
        value = math.exp(mean)
    except OverflowError:  # math.exp raises where the true value is beyond a float
        value = math.inf
    return Score(value, False, count)


def unigram_nll(counts: Iterable[int]) -> float:
    """Return the summed negative log-likelihood (nats) of items under their own frequencies.

    `counts` says how often each kind of item occurs; the sum over them is the entropy times all.
    """
    seen = [count for count in counts if count]
    total = sum(seen)
    return math.fsum(count * math.log(total / count) for count in seen)


def _positive(count: int) -> int:
    if count < 1:
        raise ValueError(f"count is {count}: a mean needs at least one item; is the split empty?")
    return count
