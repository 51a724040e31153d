"""The sensitivity of the final loss to the learning rate, compared with worked examples."""

import pytest

from normlab.metrics.rate_sensitivity import rate_sensitivity


@pytest.mark.parametrize(
    ("losses", "first", "expected"),
    [
        ([3.0, 4.0, 8.0], 9.0, 2.0),
        ([3.0, 4.0, None], 8.0, 2.0),  # a run that diverged counts as the first loss
        ([3.0, 12.0], 8.0, 2.5),  # and so does one that ended above it
        ([3.0, 4.0], None, 0.5),
        ([3.0, None], None, None),
        ([None, None], 8.0, None),
        ([5.0, 6.0], 4.0, 0.0),  # no rate is better than no update at all
    ],
)
def test_the_rate_sensitivity_matches_hand_computed_examples(losses, first, expected):
    assert rate_sensitivity(losses, first) == expected
