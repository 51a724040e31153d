"""Axes along which layers mix values."""

import torch
from torch import nn

from normlab.claim_checks.inputs import draw_normal
from tests.claim_checks.by_hand import numbers, text_of


def test_attention_mixes_positions_and_features():
    assert numbers("mixing.axes")[1] == [True, False, True, True]
    assert "attention mixes positions, features" in text_of("mixing.axes")


def test_a_linear_layer_is_a_convolution_with_kernel_size_1():
    x, weight = draw_normal(2, 6, 8), draw_normal(5, 8, seed=2)
    convolution = nn.Conv1d(8, 5, 1, bias=False).double()
    convolution.weight.data.copy_(weight[:, :, None])
    torch.testing.assert_close(convolution(x.mT).mT, nn.functional.linear(x, weight))
    assert numbers("mixing.kernel")[1] == [False]
