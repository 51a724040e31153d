"""Norms of gradients and sizes of updates, by layer and by kind."""

import re

import pytest
import torch
from torch import nn

from normlab.probes.gradients import Gradients, Updates
from tests.models.small import seq2seq
from tests.probes.one_probe import observed


def test_squared_gradient_norms_by_layer_and_by_kind_each_sum_to_the_total():
    model = seq2seq("ln", "pre").train()
    row = observed(Gradients(every=1), model)
    whole = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)
    for prefix in ("norm/", "kind/"):
        parts = [value**2 for name, value in row.items() if name.startswith(prefix)]
        assert sum(parts) == pytest.approx(whole, rel=1e-6)
    encoder_0 = [
        p.grad.square().sum()
        for name, p in model.named_parameters()
        if name.startswith("encoder.layers.0.") and p.grad is not None
    ]
    assert row["norm/encoder.0"] == pytest.approx(float(torch.stack(encoder_0).sum().sqrt()))
    layers = [value for name, value in row.items() if re.fullmatch(r"norm/\w+\.\d+", name)]
    assert len(layers) > 2
    assert row["spread"] == pytest.approx(max(layers) / min(layers))


def test_the_update_ratio_of_sgd_is_learning_rate_times_gradient_norm_over_weight_norm():
    model = seq2seq("ln", "pre").train()
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    row = observed(Updates(every=1), model)
    after = nn.utils.parameters_to_vector(model.parameters()).detach()
    assert row["ratio"] == pytest.approx(float((after - before).norm() / before.norm()))
    gradient = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    assert row["ratio"] == pytest.approx(0.01 * float(gradient / before.norm()))
    assert {"ratio/attention", "ratio/feed_forward", "ratio/norm", "ratio/embedding"} < set(row)
