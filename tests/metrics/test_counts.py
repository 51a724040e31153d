"""Means come from sums and counts, never from means."""

import math

import pytest

from normlab.metrics.counts import mean_score, perplexity, unigram_nll


def test_perplexity_of_a_uniform_guess_is_the_vocabulary_and_of_a_hopeless_one_infinite():
    score = perplexity(7 * math.log(50), 7)
    assert score.value == pytest.approx(50)
    assert not score.higher_is_better and score.n == 7
    assert perplexity(1e6, 1).value == perplexity(math.inf, 1).value == math.inf
    assert math.isnan(perplexity(math.nan, 3).value)


def test_nothing_has_no_mean():
    with pytest.raises(ValueError, match="count=0: a mean needs"):
        mean_score(0.0, 0, higher_is_better=True)


def test_items_under_their_own_frequencies_cost_their_entropy():
    assert unigram_nll([4, 4, 0, 4, 4]) == pytest.approx(16 * math.log(4))
    assert unigram_nll([7, 0]) == 0
    # No other frequencies give a lower loss; here, those of a fair coin.
    assert unigram_nll([1, 3]) < 4 * math.log(2)
