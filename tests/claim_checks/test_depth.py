"""Gradients over 100 layers."""

from normlab.claim_checks import compute
from tests.claim_checks.by_hand import numbers


def test_over_100_layers_the_first_gradient_explodes_only_without_a_norm():
    assert numbers("depth.gradients")[1] == [False, True, True, False]


def test_a_ratio_that_depends_on_rounding_is_reported_as_a_bound():
    without_norm = compute("depth.gradients")[2]
    assert without_norm.numbers == {"ratio": 1e6}
    assert "more than 1,000,000 times" in without_norm.finding
