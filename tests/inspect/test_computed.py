"""The computed parts give what the ledger keeps."""

import time
from pathlib import Path

import pytest
import torch

from normlab.claims.evidence import to_json
from normlab.inspect.computed import compute, names, rank_correlation

KEPT = Path(__file__).resolve().parents[2] / "results" / "computed.json"


def test_all_parts_give_what_the_ledger_keeps_in_seconds():
    start = time.process_time()
    assert to_json({name: compute(name) for name in names()}) == KEPT.read_text("utf-8")
    assert time.process_time() - start < 30  # about 3 on a quiet core


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
