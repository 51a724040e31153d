"""Rank correlations by hand, and the orders that each set of axes keeps."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from normlab.inspect import order
from normlab.inspect.model import Passage
from normlab.inspect.order import orders, rank_correlation, ranks
from normlab.norms.base import Norm
from normlab.norms.local import LayerNorm
from normlab.probes.sites import sites
from tests.inspect.subjects import EVERY_KIND, examined, subject, trained

KEEPS = {  # norm: (features of a token, tokens of a feature), from the axes alone
    "ln": (True, False),
    "rms": (True, False),
    "prms": (True, False),
    "scale": (True, False),
    "ada": (True, False),
    "gn": (False, False),
    "gn_sample": (False, False),
    "in": (False, False),
    "seqn": (True, False),
    "bn": (False, True),
    "bn_noisy": (False, True),
    "bn_position": (False, False),
    "bn_sample": (True, False),
    "global": (True, True),
    "rbn": (False, True),
    "repbn": (False, True),
    "prepbn": (False, False),  # in the middle of its blend
    "brn": (False, True),
    "mabn": (False, True),
    "un": (False, True),
    "bn_rms": (False, False),
    "pn": (False, False),
    "pn_v": (False, False),
}

SATURATE = {"dyt", "derf"}


@EVERY_KIND
def test_a_norm_keeps_the_orders_within_which_its_statistics_are_shared(tmp_path, norm, placement):
    about = trained(tmp_path, f"norm={norm}", f"placement={placement}")
    finding = examined(about, order.order)
    if norm == "none":
        assert finding.why_not == "the model has no norm"
        return
    alone = finding.values["alone"]
    if norm in SATURATE:  # far from 0 what differs may come out equal, and nothing is exchanged
        assert all(alone[axis]["rho"] > 0.9 for axis in ("features", "tokens"))
        return
    for axis, kept in zip(("features", "tokens"), KEEPS[norm], strict=True):
        assert (alone[axis]["exact"] == 1) == kept
        assert (alone[axis]["rho"] == pytest.approx(1, abs=1e-12)) == kept


def test_ranks_share_the_mean_of_ties():
    values = torch.tensor([[3.0, 1.0, 1.0, 2.0], [5.0, 5.0, 5.0, 4.0]])
    expected = torch.tensor([[4.0, 1.5, 1.5, 3.0], [3.0, 3.0, 3.0, 1.0]])
    torch.testing.assert_close(ranks(values), expected.double())


def test_the_correlation_is_spearmans():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
    # 1 - 6 sum(d^2) / (n (n^2 - 1)) with d = 1, 1, 1, 1, 0
    assert rank_correlation(x, torch.tensor([[20.0, 1.0, 40.0, 30.0, 50.0]])) == {
        "rho": pytest.approx(1 - 6 * 4 / 120),
        "exact": 0.0,
    }
    assert rank_correlation(x, x.exp()) == {"rho": pytest.approx(1), "exact": 1.0}
    assert rank_correlation(x, -x) == {"rho": pytest.approx(-1), "exact": 0.0}
    # Ranks 1, 2, 3 against 1.5, 1.5, 3: Pearson's 1.5 / sqrt(2 * 1.5).
    tied = rank_correlation(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.0, 0.0, 1.0]]))
    assert tied["rho"] == pytest.approx(1.5 / math.sqrt(3))


def test_rows_without_an_order_are_left_out_and_a_lost_order_counts_as_none():
    x = torch.tensor([[7.0, 7.0, 7.0], [1.0, 2.0, 3.0]])
    assert rank_correlation(x, torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))["exact"] == 1
    assert rank_correlation(x, torch.zeros(2, 3)) == {"rho": 0.0, "exact": 0.0}
    assert math.isnan(rank_correlation(x[:1], x[:1])["rho"])


def with_weights(about, change):
    model = copy.deepcopy(about.model)
    with torch.no_grad():
        for norm in sites(model, Norm).values():
            if isinstance(norm.weight, torch.nn.Parameter):
                change(norm.weight)
    return replace(about, model=model)


def test_a_negative_weight_turns_the_order_of_the_tokens_round(tmp_path):
    about = with_weights(trained(tmp_path, "norm=bn"), lambda weight: weight.fill_(-2))
    finding = order.order(about)
    assert finding.values["alone"]["tokens"] == {"rho": pytest.approx(1), "exact": 1.0}
    assert finding.values["learned"]["tokens"] == {"rho": pytest.approx(-1), "exact": 0.0}
    assert "with weight and bias to rho -1.000 (0% exactly)" in finding.answer


def test_uneven_weights_break_the_order_of_the_features_of_layer_norm_alone(tmp_path):
    def uneven(weight):
        weight.copy_(torch.linspace(0.1, 3, len(weight)))

    ln = order.order(with_weights(trained(tmp_path, "norm=ln"), uneven))
    assert ln.values["alone"]["features"]["exact"] == 1
    assert ln.values["learned"]["features"]["rho"] < 0.99
    assert ln.values["learned"]["features"]["exact"] < 1
    bn = order.order(with_weights(trained(tmp_path, "norm=bn"), uneven))
    assert bn.values["learned"]["tokens"]["exact"] == 1


def test_padding_is_not_ranked(tmp_path):
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    valid = torch.tensor([[True, True, True], [True, False, False]])
    tokens = order.drawn(Passage(x, x, valid), subject(tmp_path, "norm=ln").generator("order"))
    assert sorted(tokens.tolist()) == [0, 1, 2, 3]
    found = orders(LayerNorm(4, eps=1e-5, affine=True), Passage(x, x, valid), tokens)
    assert found["alone"]["features"]["exact"] == 1
