"""Student's t distribution against SciPy."""

import pytest
from scipy.special import stdtr, stdtrit

from normlab.metrics.student_t import quantile, upper_tail


def test_tails_and_quantiles_match_scipy_even_far_from_the_mean():
    for degrees in (1, 2, 5, 9, 30, 200):
        for t in (-3.0, 0.0, 0.4, 1.7, 12.0, 400.0):
            assert upper_tail(t, degrees) == pytest.approx(stdtr(degrees, -t), rel=1e-12)
        for confidence in (0.5, 0.95, 0.9999):
            expected = stdtrit(degrees, (1 + confidence) / 2)
            assert quantile(confidence, degrees) == pytest.approx(expected, rel=1e-11)
