"""Orders of values, compared with SciPy's correlations of ranks."""

import numpy as np
import pytest
import torch
from scipy import stats

from normlab.claim_checks import (
    compute,
    order,
)
from normlab.claim_checks.inputs import draw_normal
from normlab.claim_checks.order import rank_correlation
from tests.claim_checks.by_hand import layer_norm


def test_the_share_of_pairs_in_order_matches_kendalls_tau():
    x, y = np.random.default_rng(0).normal(size=(2, 3, 7))
    pairs, whole = order.pairs_in_order(torch.tensor(x), torch.tensor(y))
    taus = [stats.kendalltau(a, b).statistic for a, b in zip(x, y, strict=True)]
    assert pairs == pytest.approx((1 + np.mean(taus)) / 2) and whole == 0
    tokens = draw_normal(64, 16, 4).numpy()
    rows = [each.swapaxes(1, 2).reshape(-1, 16) for each in (tokens, layer_norm(tokens))]
    taus = [stats.kendalltau(a, b).statistic for a, b in zip(*rows, strict=True)]
    results = compute("order.time")
    assert results[0].numbers["pairs"] == pytest.approx((1 + np.mean(taus)) / 2)
    assert results[1].numbers == {"pairs": 1, "whole": 1}
    assert {piece.standing for piece in results} == {"contradicts"}


def test_the_rank_correlation_matches_spearmans_rho():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
    # 1 - 6 sum(d^2) / (n (n^2 - 1)) with d = 1, 1, 1, 1, 0
    results = rank_correlation(x, torch.tensor([[20.0, 1.0, 40.0, 30.0, 50.0]]))
    assert results == {"rho": pytest.approx(1 - 6 * 4 / 120), "exact": 0.0}
    assert rank_correlation(x, x.exp()) == {"rho": pytest.approx(1), "exact": 1.0}
