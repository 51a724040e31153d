"""Norms on images, computed with torch's norms."""

import numpy as np
import pytest
import torch
from torch import nn

from normlab.claim_checks import (
    images,
)
from normlab.claim_checks.inputs import draw_normal
from tests.claim_checks.by_hand import layer_norm, numbers


def test_shifted_images_and_grey_colours_match_torch_norms():
    image = draw_normal(4, 36, 8)
    planes = image.mT.unflatten(-1, (6, 6))
    for norm in (nn.BatchNorm2d(8), nn.InstanceNorm2d(8), nn.GroupNorm(8, 8)):
        moved = planes.clone()
        moved[0] = planes[0].roll((2, 3), (1, 2))
        before, after = (norm.double()(each)[0] for each in (planes, moved))
        torch.testing.assert_close(after, before.roll((2, 3), (1, 2)))
    assert images.shifted(image[0]).equal(planes[0].roll((2, 3), (1, 2)).flatten(1).T)
    assert numbers("images.shift")[1] == [True, False, True]
    colours = layer_norm(np.array([[50.0] * 3, [10, 20, 30], [100, 200, 300]]))
    assert not colours[0].any() and colours[1] == pytest.approx(colours[2], abs=0.001)
    assert numbers("images.grey")[1] == [True, True]


def test_batch_norm_keeps_channels_independent_and_layer_norm_does_not():
    x = draw_normal(4, 36, 8).mT
    other = x.clone()
    other[:, 0] *= 5
    norm = nn.BatchNorm1d(8).double()
    assert norm(x)[:, 1:].equal(norm(other)[:, 1:])
    assert numbers("images.channels")[1] == [False, True]


def test_the_correlation_of_neighbouring_pixels_matches_numpy():
    pixels = draw_normal(50, 2, 2)
    correlations = np.corrcoef(pixels.flatten(1).T)
    sides = [correlations[a, b] for a, b in ((0, 1), (2, 3), (0, 2), (1, 3))]
    assert images.mean_correlation(pixels, 1) == pytest.approx(np.abs(sides).mean())
    assert numbers("images.local")[1] == [True]
