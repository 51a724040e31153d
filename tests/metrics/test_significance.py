"""Intervals and tests for a few seeds against SciPy, closed forms and simulation."""

import math
import random
import statistics

import pytest
from scipy.special import stdtr, stdtrit
from scipy.stats import ttest_1samp

from normlab.metrics.significance import (
    Interval,
    binomial,
    equivalence,
    fisher,
    holm,
    p_value,
    paired_interval,
    quantile_of_t,
    smallest_difference,
    t_interval,
    upper_tail_of_t,
    wilson,
)


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.5],
        [1.0, 2.0, 3.0],
        [-5.0, -5.2, -4.7, -5.1],
        [-1.0, 1.0, 0.2],
        [0.1 * x * x for x in range(12)],
    ],
)
def test_intervals_and_p_values_match_scipys_t_test(values):
    found, test = t_interval(values, confidence=0.9), ttest_1samp(values, 0.3)
    expected = test.confidence_interval(0.9)
    assert (found.mean, found.n) == (pytest.approx(statistics.fmean(values)), len(values))
    assert found.sd == pytest.approx(statistics.stdev(values))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert p_value(found, against=0.3) == pytest.approx(test.pvalue)


def test_students_t_distribution_matches_scipy_even_far_from_the_mean():
    for degrees in (1, 2, 5, 9, 30, 200):
        for t in (-3.0, 0.0, 0.4, 1.7, 12.0, 400.0):
            assert upper_tail_of_t(t, degrees) == pytest.approx(stdtr(degrees, -t), rel=1e-12)
        for confidence in (0.5, 0.95, 0.9999):
            expected = stdtrit(degrees, (1 + confidence) / 2)
            assert quantile_of_t(confidence, degrees) == pytest.approx(expected, rel=1e-11)


def test_identical_nonzero_differences_have_p_0_and_zero_differences_p_1():
    assert p_value(t_interval([2.0, 2.0, 2.0])) == 0.0
    assert p_value(t_interval([0.0, 0.0])) == 1.0


def test_pairing_removes_the_variation_that_seeds_share():
    shared = {1: 10.0, 2: 20.0, 3: 30.0}
    a = {seed: value + 1 for seed, value in shared.items()} | {9: 0.0}
    found = paired_interval(a, shared)
    assert (found.mean, found.sd, found.n) == (1.0, 0.0, 3)
    assert found.low == found.high == 1.0


def test_an_interval_of_fewer_than_two_values_is_refused():
    with pytest.raises(ValueError, match="at least two values, found 1"):
        t_interval([1.0])
    with pytest.raises(ValueError, match="found 0"):
        paired_interval({1: 1.0}, {2: 1.0})


def test_equivalence_at_5_percent_agrees_with_the_90_percent_interval():
    rng = random.Random(4)
    seen = set()
    for _ in range(100):
        values = [rng.gauss(rng.uniform(-0.5, 0.5), 0.3) for _ in range(6)]
        found = t_interval(values, confidence=0.9)
        within = found.low > -0.4 and found.high < 0.4
        assert (equivalence(values, 0.4) < 0.05) == within
        seen.add(within)
    assert seen == {True, False}
    assert equivalence([0.1, 0.1], 0.2) == 0.0 and equivalence([0.3, 0.3], 0.2) == 1.0


def test_holms_correction_matches_a_hand_computed_example():
    # Sorted: 0.01 x 4, 0.03 x 3, then never below earlier ones; returned in the given order.
    assert holm([0.04, 0.01, 1.0, 0.03]) == pytest.approx([0.09, 0.04, 1.0, 0.09])
    assert holm([]) == []


def test_wilson_fisher_and_binomial_match_their_closed_forms():
    z = statistics.NormalDist().inv_cdf(0.975)
    assert wilson(5, 5) == pytest.approx((5 / (5 + z * z), 1.0))
    assert wilson(6, 5) == wilson(5, 5)  # from a damaged record
    assert fisher((0, 5), (5, 5)) == pytest.approx(2 / math.comb(10, 5))
    assert binomial(8, 8) == pytest.approx(2 * 0.5**8)
    assert binomial(2, 8) == pytest.approx(2 * (1 + 8 + 28) / 2**8)


def test_the_smallest_difference_is_detected_with_a_power_of_80_percent():
    rng = random.Random(5)
    shift = smallest_difference(Interval(0.0, 2.0, 5, math.nan, math.nan), error=0.05)
    trials = 1000
    found = sum(
        p_value(t_interval([rng.gauss(shift, 2.0) for _ in range(5)])) < 0.05 for _ in range(trials)
    )
    assert found / trials == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / trials))
