"""Means come from sums and counts, never from means."""

import math

import pytest

from normlab.metrics.counts import mean_score, perplexity, unigram_nll


def test_perplexity_is_the_vocabulary_size_for_a_uniform_guess_and_infinite_on_overflow():
    score = perplexity(7 * math.log(50), 7)
    assert score.value == pytest.approx(50)
    assert not score.higher_is_better and score.n == 7
    assert perplexity(1e6, 1).value == perplexity(math.inf, 1).value == math.inf
    assert math.isnan(perplexity(math.nan, 3).value)


def test_a_mean_over_zero_items_is_refused():
    with pytest.raises(ValueError, match="count=0, but a mean needs"):
        mean_score("accuracy", 0.0, 0)


def test_the_unigram_nll_is_the_entropy_of_the_items_frequencies():
    assert unigram_nll([4, 4, 0, 4, 4]) == pytest.approx(16 * math.log(4))
    assert unigram_nll([7, 0]) == 0
    # Any other frequencies give a higher loss, for example those of a fair coin.
    assert unigram_nll([1, 3]) < 4 * math.log(2)
