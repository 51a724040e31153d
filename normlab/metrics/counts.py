"""Scores computed from sums and counts.

Losses and hits are summed over batches and processes and divided once at the end, since a mean of
batch means would weight short and long batches equally.
"""

import math
from collections.abc import Iterable

from normlab.errors import UserError
from normlab.records.record import Score


def mean_score(total: float, count: int, *, higher_is_better: bool) -> Score:
    """Return `total / count`, such as hits per token (accuracy) or nats per token (loss)."""
    if count < 1:
        raise UserError(f"count={count}: a mean needs at least one item; is the split empty?")
    return Score(total / count, higher_is_better, count)


def perplexity(total_nll: float, count: int) -> Score:
    """Return the perplexity, exp(nll / tokens), from a summed negative log-likelihood in nats."""
    mean = mean_score(total_nll, count, higher_is_better=False).value
    return Score(math.inf if mean > 709 else math.exp(mean), False, count)  # no overflow error


def unigram_nll(counts: Iterable[int]) -> float:
    """Return the summed negative log-likelihood (nats) of items under their own frequencies.

    `counts` holds the occurrences of each kind of item; the result is entropy times the total.
    """
    positive = [count for count in counts if count]
    total = sum(positive)
    return math.fsum(count * math.log(total / count) for count in positive)
