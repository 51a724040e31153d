"""A change in words."""

import math

from normlab.inspection.model.recorded_pass import amount_in_words


def test_the_amount_of_a_change_is_described_in_words():
    texts = [amount_in_words(x) for x in (0.0, 1e-7, 0.1234, math.nan)]
    assert texts == ["not at all", "not at all (rounding)", "by 12.3 %", "by nan %"]
