"""Statistics of batches, compared with cases worked out by hand and with autograd."""

import math

import pytest
import torch
from torch import nn

from normlab.norms.make import make_norm
from normlab.norms.model_norms import ModelNorms
from normlab.norms.tokens import Tokens
from normlab.probes.statistics import (
    Fluctuation,
    Padding,
    Statistics,
    StatisticsGradient,
    TrainInferenceDiscrepancy,
    discrepancy,
    statistics_gradient,
)
from tests.models.small import seq2seq
from tests.probes.one_probe import observed, view


def statistics(**changes: list[float] | float) -> Statistics:
    """Two features: batch means 1, 2 and variances 4, 9; running means 0, 0 and variances 1, 16."""
    values = {
        "pooled": [True, True],
        "mean": [1.0, 2.0],
        "var": [4.0, 9.0],
        "mean_before": [0.0, 0.0],
        "var_before": [1.0, 16.0],
        "count": 7.0,
        **changes,
    }
    return Statistics(*map(torch.tensor, values.values()), rows=1, site="a")


def test_the_training_inference_discrepancy_matches_a_hand_computed_example():
    found = discrepancy(statistics(), eps=1e-5)
    scale = math.sqrt(1 + 16)  # of the running deviations 1 and 4
    assert float(found["mean"]) == pytest.approx(math.sqrt(1 + 4) / scale)
    assert float(found["var"]) == pytest.approx(math.sqrt((2 - 1) ** 2 + (3 - 4) ** 2) / scale)


def test_the_discrepancy_uses_the_running_statistics_from_before_the_batch():
    model = seq2seq("bn", "pre").train()
    norm = model.encoder.final_norm
    before = norm.running_mean.clone(), norm.running_var.clone()
    row = observed(TrainInferenceDiscrepancy(every=1, eps=1e-5), model)
    assert norm.last_batch is not None
    gap = norm.last_batch().mean.flatten() - before[0].flatten()
    expected = float(gap.norm() / before[1].sqrt().norm())
    assert row["mean/encoder.final"] == pytest.approx(expected)
    sited = [value for name, value in row.items() if name.startswith("mean/")]
    assert row["mean"] == pytest.approx(sum(sited) / len(sited))


def test_probes_measure_nothing_once_statistics_are_frozen():
    model = seq2seq("bn", "pre").train()
    norms = ModelNorms(model, freeze_statistics=0.5)
    probes = {
        TrainInferenceDiscrepancy: {"eps": 1e-5},
        Fluctuation: {"window": 2},
        StatisticsGradient: {},
        Padding: {},
    }
    for step in (1, 2):
        norms.begin_step(step, 2)
        rows = [observed(kind(every=1, **values), model) for kind, values in probes.items()]
        norms.commit()
        empty = [not row.keys() - {"share", "max"} for row in rows]
        assert empty == [step == 2] * 4
        assert rows[-1]["share"] == 0.25


def test_fluctuation_matches_a_hand_computed_example():
    probe = Fluctuation(every=1, window=3)
    first = probe.measure_norm(statistics())
    assert float(first["mean"]) == pytest.approx(math.sqrt(5) / 2)
    assert float(first["var"]) == pytest.approx(math.sqrt(9 + 49) / 2)
    probe = Fluctuation(every=1, window=3)
    probe.measure_norm(statistics(mean=[0.0, 0.0], var=[1.0, 2.0], count=4.0))
    found = probe.measure_norm(statistics(mean=[2.0, 0.0], var=[1.0, 4.0], count=4.0))
    assert "ratio" not in found
    found = probe.measure_norm(statistics(mean=[1.0, 3.0], var=[1.0, 6.0], count=10.0))
    # Variances between batches (n - 1): 1 and 3. Within: mean of 1 and mean of 2, 4, 6.
    ratio = (1 + 3) / (1 + 4)
    assert float(found["ratio"]) == pytest.approx(ratio)
    assert float(found["excess"]) == pytest.approx(ratio * 6)


@pytest.mark.parametrize("option", ["bn", "global"])
@pytest.mark.parametrize("padding", ["exclude", "include"])
def test_the_gradient_through_statistics_matches_autograd(option: str, padding: str):
    """The mean and the variance are leaves of the plain formula."""
    norm = make_norm(option, 4, padding=padding).double()
    nn.init.uniform_(norm.weight, 0.5, 2.0)
    x = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    valid = torch.arange(5)[None] < torch.tensor([5, 2, 4])[:, None]
    weigh = torch.randn(3, 5, 4, dtype=torch.float64) * valid[..., None]
    (norm(x, Tokens(valid)) * weigh).sum().backward()
    assert norm.last_batch is not None
    mean = norm.last_batch().mean.clone().requires_grad_()
    var = norm.last_batch().var.clone().requires_grad_()
    plain = norm.weight.detach() * (x - mean) / (var + norm.eps).sqrt() + norm.bias.detach()
    (plain * weigh).sum().backward()
    found = statistics_gradient(norm)
    assert found is not None
    assert mean.grad is not None
    assert var.grad is not None
    torch.testing.assert_close(found[0], mean.grad.flatten())
    torch.testing.assert_close(found[1], var.grad.flatten())


def test_statistics_gradients_are_measured_only_in_affine_norms_that_pool_all_tokens():
    row = observed(StatisticsGradient(every=1), seq2seq("bn", "pre").train())
    assert row["mean"] > 0
    assert row["var"] > 0
    assert "mean/encoder.final" in row
    for model in (
        seq2seq("bn_position", "pre", norm_values={"num_positions": 9}),
        seq2seq("bn", "pre", norm_values={"affine": False}),
        seq2seq("ln", "pre"),
    ):
        assert observed(StatisticsGradient(every=1), model.train()) == {}


@pytest.mark.parametrize(
    ("option", "values", "tokens"),
    [
        ("bn", {}, 11.0),
        ("bn", {"padding": "include"}, 15.0),
        ("global", {}, 11.0),
        ("bn_position", {"num_positions": 9}, 11 / 5),
        ("bn", {"ghost": 2}, (7 + 4) / 2),
        ("bn_position", {"num_positions": 9, "ghost": 2}, 11 / (5 + 4)),
    ],
)
def test_the_padding_probe_reports_tokens_per_statistic(option: str, values: dict, tokens: float):
    norm = make_norm(option, 4, **values)
    valid = torch.arange(5)[None] < torch.tensor([5, 2, 4])[:, None]
    norm(torch.randn(3, 5, 4), Tokens(valid))
    probe = Padding()
    probe.attach(nn.Sequential(norm))
    seen = view(1, norm)
    probe.before_update(seen)
    assert probe.summary()["tokens"] == pytest.approx(tokens)
    assert probe.summary()["share"] == 0.25
