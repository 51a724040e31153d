"""Activations, branches, drift and attention, compared with cases worked out by hand."""

import math
import re

import pytest
import torch
from scipy.stats import kurtosis
from torch import Tensor, nn

from normlab.models.resnet import Convolution
from normlab.norms.bounded import BoundedMap
from normlab.placements.base import Residual
from normlab.probes.activations import (
    Activations,
    AttentionWeights,
    Branches,
    Drift,
    ResidualStream,
    describe,
    describe_attention,
    describe_branch,
    drift,
    moments,
    root_mean_square,
)
from normlab.probes.sites import modules_by_site
from tests.models.small import seq2seq
from tests.probes.one_probe import observed, view

CAUSAL = torch.ones(64, 64, dtype=torch.bool).tril()


def sinks(weights, visible=CAUSAL, lengths=(64,)):
    """Return the metrics of an attention with these weights, `[P, S]`, in every sequence."""
    size, count = weights.shape[0], len(lengths)
    query = (weights.clamp(min=1e-30).log() * math.sqrt(size)).expand(count, 1, size, size)
    valid = torch.arange(size) < torch.tensor(lengths)[:, None]
    visible = valid[:, None, None] if visible is None else visible[:size, :size]
    key = torch.eye(size).expand(count, 1, size, size)
    return describe_attention(query, key, visible, valid, threshold=0.99)


def uniform(size):
    return torch.ones(size, size).tril() / torch.arange(1, size + 1)[:, None]


def test_a_sink_is_a_head_that_attends_to_the_first_key():
    first = torch.zeros(64, 64)
    first[:, 0] = 1
    for weights, share in ((torch.eye(64), 0), (first, 1), (uniform(64), 0)):
        found = sinks(weights)
        assert float(found["sink"]) == share and "sink_unmasked" not in found
    # The first key gets 0.31 from the uniform attention of 9 tokens, which are too few.
    assert "sink" not in sinks(uniform(9), lengths=(9,))
    # A quarter of the queries attends only to the first key: 0.25 of all 64, but 1 of the first 16.
    some = torch.eye(64)
    some[:16] = first[:16]
    for lengths, share in (((64,), 0), ((16, 64), 0.5), ((9, 64), 0)):
        assert float(sinks(some, lengths=lengths)["sink"]) == share
    # Queries after the 64th do not count with a causal mask; all queries count without one.
    long = torch.eye(80)
    long[64:, 0] = 1
    long[64:, 64:] = 0
    wide = torch.ones(80, 80, dtype=torch.bool).tril()
    assert float(sinks(long, wide, lengths=(80,))["sink"]) == 0
    long[:20] = long[-1]
    found = sinks(long, None, lengths=(80, 9))
    assert float(found["sink_unmasked"]) == 1 and "sink" not in found


def test_the_largest_real_value_is_located_and_compared_with_the_median():
    x = torch.ones(2, 3, 4)
    x[1, 1, 2], x[0, 2] = -30.0, 500.0
    valid = torch.tensor([[True, True, False], [True, True, True]])
    found = describe(x, valid, threshold=6.0)
    assert [float(found[n]) for n in ("over_median", "feature", "position")] == [30, 2, 1]
    model = nn.Sequential(BoundedMap(4, function="tanh", alpha=1.0, shift=None, affine=True))
    probe = Activations(every=1, threshold=6.0)
    probe.attach(model)
    probe.before_forward(1)
    model(x)
    row = probe.metrics_of(probe.collect())
    assert "over_median/0" in row and not any("position" in name for name in row)


def test_the_crest_of_a_branch_is_its_largest_real_value_over_the_root_mean_square():
    x = torch.tensor([[[3.0, -1.0], [1.0, 1.0], [50.0, 0.0]]])
    found = describe_branch(x, torch.tensor([[True, True, False]]))
    assert float(found["rms"]) == pytest.approx(math.sqrt(12 / 4))
    assert float(found["crest"]) == pytest.approx(3 / math.sqrt(3))


def test_the_branches_probe_measures_attention_and_feed_forward_branches():
    model = seq2seq("ln", "pre").train()
    row = observed(Branches(every=1), model)
    places = {name.removeprefix("crest/") for name in row if name.startswith("crest/")}
    residuals = set(modules_by_site(model, Residual))
    assert places == residuals | {"attention", "feed_forward"}
    ffn = [value for name, value in row.items() if re.fullmatch(r"crest/.*ffn", name)]
    assert row["crest/feed_forward"] == pytest.approx(sum(ffn) / len(ffn))
    both = [row[f"crest/{place}"] for place in residuals]
    assert row["crest"] == pytest.approx(sum(both) / len(both))


def test_the_branches_probe_measures_a_convolution_over_all_its_pixels():
    model = Convolution(3, 5, size=3)
    model.initialize(torch.Generator().manual_seed(0))
    probe = Branches(every=1)
    probe.attach(nn.Sequential(model))
    probe.before_forward(1)
    pictures = torch.randn(2, 3, 8, 8)
    out = model(pictures).detach()
    seen = view(1, model)
    probe.before_update(seen)
    found = {name.removeprefix("stability/"): value for name, value in seen.collected.items()}
    crest = float(out.abs().max() / out.square().mean().sqrt())
    assert float(found["crest/convolution"]) == pytest.approx(crest)


def test_drift_is_the_squared_change_of_mean_and_deviation_over_the_variance():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(50, 40, 8, generator=draw, dtype=torch.float64)
    valid = torch.rand(50, 40, generator=draw) < 0.7
    before, after = moments(x, valid), moments(3 * x + 2, valid)
    torch.testing.assert_close(before[1], x[valid].std(0, correction=0))
    found = drift(before, after)
    shift = (2 + 2 * before[0]).square().sum() / (9 * before[1].square()).sum()
    assert float(found["mean"]) == pytest.approx(float(shift))
    assert float(found["deviation"]) == pytest.approx(4 / 9)


def test_drift_needs_two_measurements():
    model = seq2seq("none", "pre").train()
    assert observed(Drift(every=1), model) == {}
    row = observed(Drift(every=1), model, steps=2)
    assert set(modules_by_site(model, Residual)) == {
        n.removeprefix("mean/") for n in row if "mean/" in n
    }


def test_activation_metrics_use_only_real_tokens():
    x = torch.tensor([[[1.0, 3.0], [100.0, 100.0]], [[-5.0, 1.0], [0.0, 2.0]]])
    valid = torch.tensor([[True, False], [True, True]])
    found = describe(x, valid, threshold=1.2)
    values = torch.tensor([1.0, 3.0, -5.0, 1.0, 0.0, 2.0])
    assert float(found["mean"]) == pytest.approx(float(values.mean()))
    assert float(found["var"]) == pytest.approx(float(values.var(correction=0)))
    assert float(found["kurtosis"]) == pytest.approx(kurtosis(values.numpy()))
    assert float(found["largest"]) == 5.0
    # The features' root mean squares are sqrt(26/3) and sqrt(14/3), that of all values sqrt(20/3):
    # only the first feature exceeds it by a factor of 1.1.
    assert float(found["outliers"]) == 0.0
    assert float(describe(x, valid, threshold=1.1)["outliers"]) == 0.5


def test_the_variance_of_activations_far_from_zero_is_accurate():
    x = torch.randn(4, 50, 16, generator=torch.Generator().manual_seed(0)) + 3000
    valid = torch.arange(50)[None] < torch.tensor([50, 3, 20, 41])[:, None]
    found = describe(x, valid, threshold=6.0)
    expected = x[valid].double().var(correction=0)
    torch.testing.assert_close(found["var"].double(), expected, rtol=1e-3, atol=0)


def test_the_residual_stream_is_measured_after_each_branch():
    model = seq2seq("ln", "pre").train()
    row = observed(ResidualStream(every=1), model)
    assert [name for name in row if name.startswith("rms/encoder")] == [
        "rms/encoder.0.self",
        "rms/encoder.0.ffn",
        "rms/encoder.1.self",
        "rms/encoder.1.ffn",
    ]
    growth = [
        row[f"rms/{stack}.1.ffn"] / row[f"rms/{stack}.0.self"] for stack in ("encoder", "decoder")
    ]
    assert row["growth"] == pytest.approx(sum(growth) / 2)
    x = torch.tensor([[[3.0, 4.0], [9.0, 9.0]]])
    assert float(root_mean_square(x, torch.tensor([[True, False]]))) == pytest.approx(12.5**0.5)


def one_head(logit_rows: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Return queries and keys [1, 1, P, S] whose logits are the given rows."""
    scores = torch.tensor(logit_rows)
    size = scores.shape[1]
    key = torch.eye(size)[None, None]
    return (scores * math.sqrt(size))[None, None], key


@pytest.mark.parametrize(
    ("logits", "wanted"),  # entropy, largest, saturated, slope
    [([[0.0] * 4], (1.0, 0.0, 0.0, 0.75)), ([[1000.0, 5.0, 2.0]], (0.0, 1000.0, 1.0, 0.0))],
)
def test_attention_metrics_are_right_for_uniform_attention_and_for_a_dominant_logit(logits, wanted):
    found = describe_attention(*one_head(logits), None, torch.tensor([[True]]), threshold=0.99)
    values = (float(found[name]) for name in ("entropy", "largest", "saturated", "slope"))
    assert [*values] == pytest.approx(wanted, abs=1e-6)


def test_masked_keys_padded_queries_and_rows_with_one_key_are_left_out():
    rows = [[0.0, 50.0, 80.0], [0.0, 0.0, 90.0], [2.0, 1.0, 0.0], [70.0, 0.0, 0.0]]
    query, key = one_head(rows)
    causal = torch.ones(4, 3, dtype=torch.bool).tril()
    valid = torch.tensor([[True, True, True, False]])
    found = describe_attention(query, key, causal, valid, threshold=0.99)
    p = torch.tensor([2.0, 1.0, 0.0]).softmax(0)
    entropy = float(-(p * p.log()).sum() / math.log(3))
    assert float(found["entropy"]) == pytest.approx((1.0 + entropy) / 2)  # the second is uniform
    assert float(found["slope"]) == pytest.approx((0.5 + 1 - float(p.square().sum())) / 2)
    assert float(found["largest"]) == pytest.approx(2.0)
    assert float(found["saturated"]) == 0.0


def test_the_attention_probe_measures_every_attention_of_a_translation_model():
    row = observed(AttentionWeights(every=1, threshold=0.99), seq2seq("ln", "pre").train())
    seen = [name.removeprefix("entropy/") for name in row if name.startswith("entropy/")]
    layers = [f"{stack}.{i}" for stack in ("encoder", "decoder") for i in (0, 1)]
    expected = [f"{name}.self" for name in layers] + [f"decoder.{i}.cross" for i in (0, 1)]
    assert sorted(seen) == sorted(expected)
