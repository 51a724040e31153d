"""Entropy and likeness of words by position, compared with direct counts."""

import numpy as np
import pytest
from scipy import stats

from normlab.claim_checks import (
    positions,
)
from tests.claim_checks.by_hand import numbers


def test_the_entropy_and_the_probability_of_equal_words_match_a_direct_count():
    words = ["a", "man", "a", "dog", "a", "a", "the"]
    times, spectrum = [4, 1, 1, 1], [[1, 3], [4, 1]]
    assert positions.entropy(spectrum) == pytest.approx(stats.entropy(times, base=2))
    pairs = [a == b for i, a in enumerate(words) for j, b in enumerate(words) if i != j]
    assert positions.probability_of_same_word(spectrum) == pytest.approx(np.mean(pairs))
    for corpus in positions.read_word_counts().values():
        total = {key: sum(t * n for t, n in rows) for key, rows in corpus["positions"].items()}
        assert total["1"] == total["last"] == corpus["sentences"] < total["all"]
    assert set(numbers("positions.differ")[1]) == {True}
    assert set(numbers("positions.alike")[1]) == {False}


def test_a_quantile_is_the_length_that_a_share_of_sentences_does_not_exceed():
    assert [positions.quantile([[3, 1], [9, 1], [5, 18]], p) for p in (0.05, 0.5, 1.0)] == [3, 5, 9]
    for corpus in positions.read_word_counts().values():
        assert sum(number for _, number in corpus["lengths"]) == corpus["sentences"]
