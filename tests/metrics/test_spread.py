"""Intervals for a few seeds against closed forms, a numerical integral and simulation."""

import math
import random
import statistics

import pytest

from normlab.metrics.spread import paired_interval, t_interval, t_quantile


def share_by_integral(t, degrees, steps=20_000):
    """Integrate Student's density over [-t, t] by the midpoint rule."""
    constant = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2)
    constant /= math.sqrt(degrees * math.pi)
    width = 2 * t / steps
    points = (-t + (i + 0.5) * width for i in range(steps))
    return sum(constant * (1 + x * x / degrees) ** (-(degrees + 1) / 2) for x in points) * width


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_one_and_two_degrees_have_closed_forms(confidence):
    assert t_quantile(1, confidence=confidence) == pytest.approx(
        math.tan(math.pi * confidence / 2)
    )  # Cauchy
    assert t_quantile(2, confidence=confidence) == pytest.approx(
        confidence * math.sqrt(2 / (1 - confidence**2))
    )


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8, 9, 20, 31])
def test_the_quantile_covers_its_share_of_the_density(degrees):
    t = t_quantile(degrees, confidence=0.95)
    assert share_by_integral(t, degrees) == pytest.approx(0.95, abs=1e-6)


def test_many_degrees_approach_the_normal_distribution():
    normal = statistics.NormalDist().inv_cdf(0.975)
    assert t_quantile(2000, confidence=0.95) == pytest.approx(normal, rel=1e-3)


def test_an_interval_by_hand():
    found = t_interval([1.0, 2.0, 3.0])
    half = t_quantile(2, confidence=0.95) / math.sqrt(3)  # the standard deviation is 1
    assert (found.mean, found.sd, found.n) == (2.0, 1.0, 3)
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half))


def test_intervals_hold_the_true_mean_as_often_as_they_say():
    rng = random.Random(0)
    trials = 2000
    held = 0
    for _ in range(trials):
        found = t_interval([rng.gauss(5, 2) for _ in range(3)])
        held += found.low <= 5 <= found.high
    assert held / trials == pytest.approx(0.95, abs=0.02)  # four standard errors


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
    with pytest.raises(ValueError, match="allowed: 1 and more"):
        t_quantile(0, confidence=0.95)
    with pytest.raises(ValueError, match="between 0 and 1"):
        t_quantile(3, confidence=95.0)
