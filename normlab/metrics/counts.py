"""Scores computed from sums and counts.

Losses and hits are summed over batches and processes, and divided once at the end. A mean of batch
means would weight short and long batches equally.
"""

import math
from collections.abc import Iterable

from normlab.errors import UserError
from normlab.metrics.glossary import new_score
from normlab.records.record import Score


def mean_score(name: str, total: float, count: int) -> Score:
    """Return `total / count` as a score of the glossary, such as hits per token for `accuracy`.

    Raises UserError if `count` is 0, and KeyError if the name is not in the glossary.
    """
    if count < 1:
        raise UserError(f"count={count}, but a mean needs at least one item; is the split empty?")
    return new_score(name, total / count, count)


def mean_scores(count: int, **totals: float) -> dict[str, Score]:
    """Return each total divided by `count`, as scores keyed by name."""
    return {name: mean_score(name, total, count) for name, total in totals.items()}


def perplexity(total_nll: float, count: int) -> Score:
    """Return the perplexity, exp(nll / tokens), from a summed negative log-likelihood in nats."""
    mean = mean_score("nll", total_nll, count).value
    value = math.inf if mean > 709 else math.exp(mean)  # math.exp would overflow
    return new_score("perplexity", value, count)


def unigram_nll(counts: Iterable[int]) -> float:
    """Return the summed negative log-likelihood of items under their own frequencies, in nats.

    `counts` has the number of occurrences of each distinct item. The result is the entropy of their
    distribution times the total number of items.
    """
    positive = [count for count in counts if count]
    total = sum(positive)
    return math.fsum(count * math.log(total / count) for count in positive)
