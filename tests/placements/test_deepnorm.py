"""DeepNorm: alpha and beta from the paper's table."""

import pytest

from normlab.placements.base import XAVIER
from tests.models.small import DIM, norms, placement
from tests.placements.places import at


@pytest.mark.parametrize(
    ("stack", "layers", "other", "alpha", "beta"),
    [
        ("decoder", 12, 0, 24**0.25, 96**-0.25),
        ("encoder", 6, 6, 1.418, 0.497),
        ("encoder", 18, 6, 0.81 * (18**4 * 6) ** 0.0625, 0.87 * (18**4 * 6) ** -0.0625),
        ("decoder", 18, 6, 54**0.25, 216**-0.25),
    ],
)
def test_deepnorm_uses_alpha_and_beta_from_the_papers_table(stack, layers, other, alpha, beta):
    """The constants for 6 + 6 layers and for 12 were computed independently."""
    built, place = placement("deepnorm"), at(stack, layers, other)
    assert built.residual(norms(), DIM, place).factor == pytest.approx(alpha, rel=1e-3)
    for role in XAVIER:
        expected = 1 if role in ("q", "k") else beta
        factor = built.weight_factor(role, place)
        assert factor == pytest.approx(expected, rel=1e-3) and built.xavier[role] == 1
