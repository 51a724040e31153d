"""The running mean compared with the mean of a sentence."""

import math

import pytest

from tests.claim_checks.by_hand import numbers


def test_one_sentence_is_a_quarter_of_a_standard_deviation_from_the_running_mean():
    """For independent tokens the value is one over the square root of their number, here 16."""
    distances, holds = numbers("modes.sentence")
    assert holds == [True] and distances["one"] == pytest.approx(1 / math.sqrt(16), abs=0.01)
    assert distances["many"] < 2 / math.sqrt(60 * 32 * 16 * 0.1)
