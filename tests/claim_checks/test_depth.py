"""Gradients over 100 layers."""

from tests.claim_checks.by_hand import numbers


def test_over_100_layers_the_first_gradient_explodes_only_without_a_norm():
    assert numbers("depth.gradients")[1] == [False, True, True, False]
