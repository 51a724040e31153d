"""The variance of the mean, compared with its formula."""

import pytest

from normlab.claim_checks.sampling import variances_of_means
from tests.claim_checks.by_hand import numbers


def test_the_variance_of_the_mean_falls_with_the_number_of_values():
    variances = variances_of_means(1, 0.0)
    assert [n * variance for n, variance in variances.items()] == pytest.approx([1] * 6, rel=0.1)


def test_correlated_tokens_count_as_fewer_independent_ones():
    effects = [n * variance for n, variance in variances_of_means(16, 0.1).items()]
    assert effects == pytest.approx([1 + 15 * 0.1] * 6, rel=0.1)
    assert numbers("sampling.variance_of_the_mean")[1] == [True, False, False]
