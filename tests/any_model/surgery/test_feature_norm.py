"""Layer and RMS norms over the last axis, recognized by running them."""

import pytest
import torch
from torch import nn

from normlab.any_model.surgery.feature_norm import LAYER_NORM, RMS_NORM, feature_norm_of

D = 6


class OnePlus(nn.RMSNorm):
    """An RMS norm with the gain 1 + weight, as in Gemma."""

    def forward(self, x):
        return nn.functional.rms_norm(x, (D,), 1 + self.weight, self.eps)


@pytest.mark.parametrize(
    ("norm", "kind", "plain"),
    [
        (nn.LayerNorm(D, eps=1e-3), LAYER_NORM, 1.0),
        (nn.RMSNorm(D, eps=1e-3), RMS_NORM, 1.0),
        (OnePlus(D, eps=1e-3), RMS_NORM, 0.0),
    ],
)
def test_a_norm_is_recognized_with_its_gain_and_eps(norm, kind, plain):
    norm.weight.data += torch.linspace(0, 1, D)
    found = feature_norm_of(norm, D)
    assert found is not None and (found.kind, found.plain, found.eps) == (kind, plain, 1e-3)
    torch.testing.assert_close(found.gain.float(), norm.weight.data + (1 - plain))


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, D), nn.InstanceNorm1d(3), nn.Linear(D, D)])
def test_other_modules_are_not_recognized(norm):
    assert feature_norm_of(norm, D) is None
