"""What a scale and shift can undo, by linear regression."""

import numpy as np
import pytest

from normlab.claim_checks import (
    compute,
)
from normlab.claim_checks.inputs import draw_tokens
from tests.claim_checks.by_hand import layer_norm


def test_a_scale_and_shift_undo_batch_norm_but_not_layer_norm():
    x = draw_tokens(32, 16).numpy().reshape(512, -1)
    # The best linear fit to one feature leaves the share of variance that it does not explain.
    correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(x.T, layer_norm(x).T, strict=True)]
    left = np.sum(x.var(0) * (1 - np.square(correlation))) / x.var(0).sum()
    findings = compute("affine.identity")
    assert findings[1].numbers["left"] == pytest.approx(np.sqrt(left))
    assert findings[0].numbers["left"] < 1e-12
