"""Sub-LN: the weight factors from the paper's table."""

import math

from tests.models.small import (
    placement,
)
from tests.placements.places import at


def test_subln_uses_the_weight_factors_from_the_papers_table():
    built = placement("subln")

    def factor(role, *place, **more):
        return built.weight_factor(role, at(*place, **more))

    assert factor("fc1", "encoder", 12) == factor("v", "decoder", 12) == math.log(24) ** 0.5
    assert factor("out", "encoder", 6, 4) == (math.log(12) * math.log(12) / 3) ** 0.5
    assert factor("fc2", "decoder", 4, 6) == math.log(12) ** 0.5
    assert factor("v", "decoder", 4, 6, sublayer="cross") == factor("q", "encoder", 6, 4) == 1
