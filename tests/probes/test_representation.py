"""Exact cases of ranks and of saturation."""

import math

import pytest
import torch
from torch import nn

from normlab.norms.bounded import BoundedMap
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from normlab.probes.representation import Rank, Saturation, ranks
from normlab.probes.sites import ModuleCall


def test_ranks_count_the_directions_of_centered_states():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4096, 64, generator=draw)
    massive = x.clone()
    massive[:, 7] += 1000.0  # the same for every token
    for states in (x, massive):
        found = ranks(states)
        assert float(found["participation"]) == pytest.approx(63.0, abs=0.1)
        assert float(found["effective"]) == pytest.approx(63.9, abs=0.1)
    line = torch.randn(100, 1, generator=draw) * torch.randn(8, generator=draw) + 5
    assert [float(rank) for rank in ranks(line).values()] == pytest.approx([1, 1], abs=1e-3)
    axes = torch.cat([torch.eye(4), -torch.eye(4)])
    assert [float(rank) for rank in ranks(axes).values()] == pytest.approx([4, 4])


def test_a_rank_needs_ten_real_tokens_per_feature():
    class Two(nn.Module):
        streams = 2

    y = torch.randn(2, 20, 8, generator=torch.Generator().manual_seed(0))
    probe, valid = Rank(every=1, tokens=10), torch.ones(2, 20, dtype=torch.bool)
    found = probe.measure_call(ModuleCall("a", Two(), (y, Tokens(valid)), y))
    assert found == ranks(y[..., :4].flatten(0, 1))  # 40 tokens of the first stream
    valid[1, -1] = False
    assert probe.measure_call(ModuleCall("a", Two(), (y, Tokens(valid)), y)) == {}


@pytest.mark.parametrize(
    ("function", "above"), [("tanh", 2.0), ("erf", 1.4825), ("isru", 0.964 / math.sqrt(0.070704))]
)
def test_saturation_is_the_share_of_real_values_near_the_bound_for_any_gain(function, above):
    root = function == "isru"  # times sqrt(D), as in DyISRU
    norm = BoundedMap(5, function=function, alpha=0.5, shift=None, affine=True, root_width=root)
    nn.init.constant_(norm.weight, 0.1)
    x = 3 * above * torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(0))
    valid = torch.arange(40) < torch.tensor([40, 9, 30])[:, None]
    found = Saturation(every=1, threshold=0.964).measure_call(
        ModuleCall("a", norm, (x, Tokens(valid)), x)
    )
    share = float((0.5 * x[valid].abs() > above).double().mean())
    assert float(found["share"]) == pytest.approx(share, abs=1e-6) and 0.1 < share < 0.9


def test_bhyt_saturates_where_rms_norm_times_lam_over_kappa_is_above_2():
    norm = make_norm("bhyt", 5, lam=3.0, kappa=1.0)
    x = torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(0))
    probe = Saturation(every=1, threshold=math.tanh(2))
    assert probe.applies(norm) and not probe.applies(make_norm("rms", 5))
    found = probe.measure_call(ModuleCall("a", norm, (x, Tokens(torch.ones(3, 40) > 0)), x))
    share = float((3 * make_norm("rms", 5, eps=1e-6)(x).abs() > 2).double().mean())
    assert float(found["share"]) == pytest.approx(share, abs=1e-6) and 0.1 < share < 0.9
