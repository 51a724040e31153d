"""The computed parts give what the ledger keeps, and the values that the documents state."""

import time
from functools import cache
from pathlib import Path

import pytest
import torch

from normlab.claims.evidence import to_json
from normlab.inspect import computed
from normlab.inspect.computed import names, rank_correlation

KEPT = Path(__file__).resolve().parents[2] / "results" / "computed.json"
compute = cache(computed.compute)


def test_all_parts_give_what_the_ledger_keeps_in_seconds():
    start = time.process_time()
    assert to_json({name: compute(name) for name in names()}) == KEPT.read_text("utf-8")
    assert time.process_time() - start < 30  # about 3 on a quiet core


def test_five_zeros_move_the_mean_to_1_5_and_the_variance_to_3_25():
    torchs, ours, left_out = (piece.numbers for piece in compute("padding.pollutes"))
    assert torchs == pytest.approx({"mean": 1.5, "var": 3.25}) == ours
    assert left_out == pytest.approx({"mean": 3.0, "var": 2.0})


def test_n_counts_tokens_and_correlated_ones_count_for_less():
    single, sentences, alike = compute("sampling.variance_of_the_mean")
    assert single.numbers["slope"] == pytest.approx(-1, abs=0.05)
    assert sentences.numbers["per_sentence"] == pytest.approx(16, rel=0.05)
    assert alike.numbers["design_effect"] == pytest.approx(1 + 15 * 0.1, rel=0.05)


def test_the_outlier_saturates_the_softmax_unless_layer_norm_is_applied():
    bare, layer = compute("outlier.softmax")
    assert bare.numbers["slope"] == 0
    assert layer.numbers["value"] == pytest.approx(1.73, abs=0.005)
    assert layer.numbers["slope"] == pytest.approx(0.298, abs=0.001)


def test_an_unknown_check_names_those_there_are():
    with pytest.raises(ValueError, match=r"no question 'padding.eats': .*padding.pollutes"):
        compute("padding.eats")


def test_the_correlation_of_ranks_is_spearmans():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
    # 1 - 6 sum(d^2) / (n (n^2 - 1)) with d = 1, 1, 1, 1, 0
    assert rank_correlation(x, torch.tensor([[20.0, 1.0, 40.0, 30.0, 50.0]])) == {
        "rho": pytest.approx(1 - 6 * 4 / 120),
        "exact": 0.0,
    }
    assert rank_correlation(x, x.exp()) == {"rho": pytest.approx(1), "exact": 1.0}
    # Ranks 1, 2, 3 against 1.5, 1.5, 3: Pearson's 1.5 / sqrt(2 * 1.5).
    tied = rank_correlation(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.0, 0.0, 1.0]]))
    assert tied["rho"] == pytest.approx(1.5 / 3**0.5)
