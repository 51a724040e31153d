"""The shape of distributions after a norm, compared with SciPy and torch."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from normlab.claim_checks import (
    compute,
    shape,
)
from normlab.claim_checks.inputs import draw_normal
from tests.claim_checks.by_hand import batch_norm, numbers


def test_batch_norm_keeps_the_skewness_that_scipy_measures():
    x = np.random.default_rng(0).exponential(size=(500, 3))
    measured = shape.skewness(torch.tensor(x)).numpy()
    np.testing.assert_allclose(measured, stats.skew(x, axis=0))
    np.testing.assert_allclose(stats.skew(batch_norm(x), axis=0), measured, rtol=1e-9)
    values, holds = numbers("shape.kept")
    assert values["before"] == pytest.approx(2, abs=0.1) == values["after"]  # an exponential's
    assert holds == [True, False]
    assert numbers("shape.moments")[1] == [True, True, False]


def test_a_product_scales_a_vector_by_the_root_of_width_times_weight_variance():
    factors = [piece.numbers["factor"] for piece in compute("shape.growth")]
    assert factors == pytest.approx([16, 1, 3**-0.5], rel=0.02)
    assert numbers("shape.growth")[1] == [True, False, False]


def test_the_moments_of_an_rms_normed_token_match_torch():
    x = draw_normal(64, 64, 256) + 3
    y = nn.functional.rms_norm(x, [256], eps=1e-6)
    values, holds = numbers("shape.rms")
    assert holds == [True, False]
    wanted = {
        "mean": y.mean(-1).mean(),
        "var": y.var(-1, correction=0).mean(),
        "square": 1.0,
        "by_ln": 0.0,
    }
    assert values == pytest.approx({k: float(v) for k, v in wanted.items()}, abs=1e-3)
