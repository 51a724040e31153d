"""The loss without a layer."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from normlab.inspection.model import held_out_loss, layer_skip
from normlab.inspection.model.layer_skip import losses_without
from normlab.models.seq2seq import Layer
from normlab.probes.sites import modules_by_site
from tests.inspection.tiny_models import examined, trained


def test_a_layer_of_a_model_with_two_streams_can_be_skipped(tmp_path):
    about = trained(tmp_path, "norm=ln", "placement=resi_dual")
    values = examined(about, layer_skip.layer_skip).values
    assert list(values["rise"]) == ["encoder.0", "decoder.0"]
    assert values["loss"] == held_out_loss.held_out_loss(about)()
    model = copy.deepcopy(about.model)
    model.decoder.layers = nn.ModuleList()  # the opening already made two streams
    without = held_out_loss.held_out_loss(replace(about, model=model))()
    assert values["rise"]["decoder.0"] == pytest.approx(without - values["loss"])


def test_skipping_a_layer_that_adds_0_does_not_raise_the_loss(tmp_path):
    still = trained(tmp_path, "norm=ln")
    model = copy.deepcopy(still.model)
    for layer in modules_by_site(model, Layer).values():
        for name, parameter in layer.named_parameters():
            if "out_proj" in name or "fc2" in name:
                nn.init.zeros_(parameter)
    rises = layer_skip.layer_skip(replace(still, model=model)).values["rise"]
    assert set(rises.values()) == {0.0}


class ReturnsState(nn.Module):
    def forward(self, x):
        return 2 * x, "state"


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = ReturnsState(), nn.Linear(6, 6).double()

    def forward(self, x):
        y, state = self.a(x=x)
        assert state == "state"
        return self.b(y)


def test_a_skipped_layer_returns_its_first_input_and_its_other_outputs():
    x, model = torch.randn(50, 6).double(), TwoLayers()
    losses = losses_without({"a": model.a, "b": model.b}, lambda: float(model(x).sum()))
    assert losses == pytest.approx({"a": float(model.b(x).sum()), "b": float(2 * x.sum())})
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
