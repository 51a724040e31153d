"""Gains without biases, and RMS norm with one plus its gain."""

import pytest
import torch

from normlab.config.registry import option_settings
from normlab.norms.make import make_norm
from tests.models.small import NORMS


@pytest.mark.parametrize(
    "norm", [n for n in NORMS if "affine" in option_settings("norm", n, "norm")]
)
def test_every_affine_norm_can_have_a_gain_without_a_bias(norm):
    full, scale = (make_norm(norm, 16, affine=affine) for affine in (True, "scale"))
    names = {name for name, _ in full.named_parameters() if "bias" not in name}
    assert {name for name, _ in scale.named_parameters()} == names and "weight" in names
    x = torch.randn(4, 3, 16)
    assert torch.equal(full(x), scale(x))


def test_rms_norm_with_one_plus_equals_rms_norm_with_the_gain_one_plus_w():
    plain, plus = make_norm("rms", 6), make_norm("rms", 6, one_plus=True)
    assert not plus.weight.any()
    x = torch.randn(2, 3, 6)
    for eps_inside in (True, False):  # the kernel, and the formula
        plain.eps_inside = plus.eps_inside = eps_inside
        with torch.no_grad():
            plain.weight.uniform_(0.5, 1.5)
            plus.weight.copy_(plain.weight - 1)
        torch.testing.assert_close(plus(x), plain(x))
