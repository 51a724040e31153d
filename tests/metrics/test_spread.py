"""Intervals and tests for a few seeds against closed forms, an integral and simulation."""

import math
import random
import statistics

import pytest

from normlab.metrics.spread import (
    Interval,
    binomial,
    equivalence,
    fisher,
    holm,
    p_value,
    paired_interval,
    smallest_difference,
    t_interval,
    wilson,
)


def t_quantile(degrees, *, confidence):
    """Read the quantile off an interval."""
    values = [0.0] * (degrees - 1) + [1.0, -1.0]
    found = t_interval(values, confidence=confidence)
    return found.high * math.sqrt(found.n) / found.sd


def share_by_integral(t, degrees, steps=20_000):
    """Integrate Student's density over [-t, t] by the midpoint rule."""
    constant = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2)
    constant /= math.sqrt(degrees * math.pi)
    width = 2 * t / steps
    points = (-t + (i + 0.5) * width for i in range(steps))
    return sum(constant * (1 + x * x / degrees) ** (-(degrees + 1) / 2) for x in points) * width


@pytest.mark.parametrize("degrees", [1, 2, 4, 11])
def test_the_quantile_covers_its_share_of_the_density(degrees):
    t = t_quantile(degrees, confidence=0.95)
    assert share_by_integral(t, degrees) == pytest.approx(0.95, abs=1e-6)


def test_an_interval_by_hand():
    found = t_interval([1.0, 2.0, 3.0])
    half = t_quantile(2, confidence=0.95) / math.sqrt(3)  # the standard deviation is 1
    assert (found.mean, found.sd, found.n) == (2.0, 1.0, 3)
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half))


def test_pairing_takes_what_seeds_share_out():
    shared = {1: 10.0, 2: 20.0, 3: 30.0}
    a = {seed: value + 1 for seed, value in shared.items()} | {9: 0.0}
    found = paired_interval(a, shared)
    assert (found.mean, found.sd, found.n) == (1.0, 0.0, 3)
    assert found.low == found.high == 1.0


def test_too_little_is_refused():
    with pytest.raises(ValueError, match="at least two values, found 1"):
        t_interval([1.0])
    with pytest.raises(ValueError, match="found 0"):
        paired_interval({1: 1.0}, {2: 1.0})


@pytest.mark.parametrize("t", [0.3, 1.0, 2.5])
def test_p_values_against_the_density(t):
    found = Interval(t / math.sqrt(5), 1.0, 5, math.nan, math.nan)
    assert p_value(found) == pytest.approx(1 - share_by_integral(t, 4), abs=1e-6)


def test_a_p_value_is_small_where_the_interval_leaves_out_zero():
    assert p_value(t_interval([2.0, 2.0, 2.0])) == 0.0
    assert p_value(t_interval([0.0, 0.0])) == 1.0
    for values in ([1.0, 2.0, 3.0], [1.0, 1.1, 1.3], [-5.0, -5.2, -4.7, -5.1], [-1.0, 1.0, 0.2]):
        found = t_interval(values)
        assert (p_value(found) < 0.05) == (found.low > 0 or found.high < 0)
        edge = t_interval([value - found.low for value in values])  # whose lower bound is zero
        assert p_value(edge) == pytest.approx(0.05)


def test_equivalence_agrees_with_the_interval_of_twice_the_error():
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


def test_holms_correction_by_hand():
    # In order: 0.01 x 4, 0.03 x 3, then no smaller than those before; in the order given.
    assert holm([0.04, 0.01, 1.0, 0.03]) == pytest.approx([0.09, 0.04, 1.0, 0.09])
    assert holm([]) == []


def test_shares_of_seeds_by_formulas():
    z = statistics.NormalDist().inv_cdf(0.975)
    assert wilson(5, 5) == pytest.approx((5 / (5 + z * z), 1.0))
    assert fisher((0, 5), (5, 5)) == pytest.approx(2 / math.comb(10, 5))
    assert binomial(8, 8, against=0.5) == pytest.approx(2 * 0.5**8)
    assert binomial(2, 8, against=0.5) == pytest.approx(2 * (1 + 8 + 28) / 2**8)


def test_the_smallest_difference_is_found_four_times_in_five():
    rng = random.Random(5)
    shift = smallest_difference(Interval(0.0, 2.0, 5, math.nan, math.nan), error=0.05)
    trials = 1000
    found = sum(
        p_value(t_interval([rng.gauss(shift, 2.0) for _ in range(5)])) < 0.05 for _ in range(trials)
    )
    assert found / trials == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / trials))
