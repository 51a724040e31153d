"""The signal that bypasses a sub-layer."""

import numpy as np
import pytest

from normlab.claim_checks import (
    compute,
)
from normlab.claim_checks.inputs import draw_tokens
from tests.claim_checks.by_hand import batch_norm, layer_norm, numbers


def test_a_norm_after_the_sum_changes_the_input_even_if_the_sub_layer_adds_0():
    x = draw_tokens(8, 16).numpy()
    after = batch_norm(x.reshape(-1, x.shape[-1])).reshape(x.shape), layer_norm(x)
    expected = [np.linalg.norm(y - x) / np.linalg.norm(x) for y in after]
    moved = [each.numbers["moved"] for each in compute("residual.signal")]
    assert moved == pytest.approx([*expected, 0], abs=1e-6)
    assert numbers("residual.signal")[1] == [True, False, True]
