"""Rounding to 8 bits, and the losses of quantized layers."""

import copy
import math

import pytest
import torch
from torch import nn

from normlab.any_model.surgery.ablation import quantized
from normlab.inspection.model.int8 import quantized_losses


def test_one_outlier_makes_int8_round_almost_all_other_values_to_zero():
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def decibels(values):
        error = (quantized(values, values.abs().amax(), 8) - values)[: len(x)]
        return float(10 * (x.square().sum() / error.square().sum()).log10())

    # Rounding errors are uniform within a step: 39.6 dB if the largest value is 4.6.
    expected = 10 * math.log10(12 * 127**2 / float(x.abs().amax()) ** 2)
    assert decibels(x) == pytest.approx(expected, abs=0.1) and 38.5 < expected < 41
    assert 0 <= decibels(torch.cat([x, x.new_tensor([1000.0])])) < 0.01
    largest = x.abs().amax()
    assert torch.equal(quantized(512 * x, 512 * largest, 8), 512 * quantized(x, largest, 8))
    assert len(quantized(x, largest, 3).unique()) == 7
    assert torch.equal(quantized(0 * x, x.new_zeros(()), 8), 0 * x)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3)).double()


@pytest.fixture
def x(model):
    return torch.randn(50, 6).double()


def quantized_model(model, x, **values):
    """Return the losses of a model quantized with the input ranges that half its input has."""
    layers = [model[0], model[2]]
    return quantized_losses(
        layers, lambda: model(x / 2), lambda: float(model(x).square().mean()), **values
    )


def test_w8_rounds_the_weights(model, x):
    rounded = copy.deepcopy(model)
    for layer in (rounded[0], rounded[2]):
        layer.weight.data = quantized(layer.weight.data, layer.weight.abs().amax(), 8)
    assert quantized_model(model, x)["W8"] == float(rounded(x).square().mean())


def test_a8_rounds_and_clips_inputs_to_the_range_of_the_calibration_batches(model, x):
    mid = model[1](model[0](quantized(x, (x / 2).abs().amax(), 8)))
    top = model[1](model[0](x / 2)).abs().amax()
    clipped = model[3](model[2](quantized(mid, top, 8))).square().mean()
    assert quantized_model(model, x)["A8"] == pytest.approx(float(clipped))


def test_16_bits_change_the_loss_less_than_8_bits(model, x):
    loss = float(model(x).square().mean())
    eight = quantized_model(model, x)
    layers = [model[0], model[2]]
    fine = quantized_losses(
        layers, lambda: model(x), lambda: float(model(x).square().mean()), bits=16
    )
    assert list(eight) == ["W8A8", "W8", "A8"] and len({loss, *eight.values()}) == 4
    assert all(abs(value - loss) < 1e-4 for value in fine.values())


def test_quantization_leaves_the_model_unchanged(model, x):
    before = copy.deepcopy(model.state_dict())
    quantized_model(model, x)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model)
