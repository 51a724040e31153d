"""The formula of a norm is found by running it."""

import pytest
import torch
from torch import nn

from normlab.any_model.surgery.formula import formula_of
from normlab.norms.make import make_norm
from tests.any_model.surgery.test_swap import D, MyRMSNorm, shaken

TOKENS, IMAGES = torch.Size([2, 5, D]), torch.Size([2, D, 4, 4])
SIGNALS = torch.Size([2, D, 20])


class SimpleNorm(nn.Module):
    """Divides by the RMS over an axis, without a parameter or attribute of the axis's size."""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis = axis

    def forward(self, x):
        return x * x.square().mean(self.axis, keepdim=True).rsqrt()


class MyInstanceNorm(SimpleNorm):
    """A class whose name says that it pools over positions."""


class ScaleNorm(nn.Module):
    """Divides by the length of each vector, with one gain for all features."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.gain * nn.functional.normalize(x, dim=-1)


class TensorNorm(nn.Module):
    """RMS norm with a gain that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.gain = torch.ones(D)

    def forward(self, x):
        return self.gain * nn.functional.rms_norm(x, x.shape[-1:])


@pytest.mark.parametrize(
    ("norm", "shape", "expected"),
    [
        (nn.LayerNorm(D), TOKENS, ("ln", -1)),
        (MyRMSNorm(offset=1), TOKENS, ("rms", -1)),
        (nn.BatchNorm2d(D), IMAGES, ("bn", 1)),
        (nn.GroupNorm(2, D), IMAGES, None),
        (nn.InstanceNorm2d(D, affine=True), IMAGES, None),
        (nn.InstanceNorm1d(D), SIGNALS, None),
        (nn.InstanceNorm1d(D, track_running_stats=True), SIGNALS, ("bn", 1)),
        (nn.GroupNorm(D, D), SIGNALS, None),
        (make_norm("in", D), TOKENS, None),
        (MyInstanceNorm(), SIGNALS, None),
        (ScaleNorm(), TOKENS, ("rms", -1)),
        (SimpleNorm(), TOKENS, ("rms", -1)),
        (SimpleNorm(), torch.Size([2, D]), ("rms", -1)),
        (SimpleNorm(1), IMAGES, ("rms", 1)),
        (TensorNorm(), TOKENS, ("rms", -1)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_the_formula_and_the_axis_of_the_features_are_found(norm, shape, expected):
    with torch.no_grad():
        formula = formula_of(shaken(norm).eval(), shape)
    assert (formula and (formula.kind, formula.axis)) == expected


def test_the_gain_is_found_even_if_the_parameter_is_an_offset_from_1():
    norm = shaken(MyRMSNorm(offset=1))
    with torch.no_grad():
        formula = formula_of(norm, TOKENS)
    assert formula is not None
    torch.testing.assert_close(formula.gain.float(), 1 + norm.weight.data, rtol=1e-3, atol=1e-4)
