"""Whether the padding of a row reaches its real positions."""

import pytest
import torch

from normlab.any_model.tracing.norm_trial import Trial
from normlab.any_model.tracing.reach import _padding_reaches


@pytest.mark.parametrize("axis", [1, 2])
def test_padding_along_one_of_two_axes_that_affects_real_positions_is_found(axis):
    """The input is 1 x 4 x 4, of which 2 x 2 are real. Padding of the other axis has no effect."""

    class Padded(Trial):
        x = torch.zeros(1, 4, 4)

        def __init__(self):
            """Run no module."""

        def changed_outputs(self, index, training):
            changed = torch.zeros(1, 4, 4, dtype=torch.bool)
            changed[:, :2, :2] = index[axis] == -1
            changed[:, 2:] = changed[:, :, 2:] = True  # padding may change
            return changed

    padded = Padded()
    assert _padding_reaches(padded, torch.Size((1, 2, 2)), on_the_left=False, training=False)
