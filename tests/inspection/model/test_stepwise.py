"""Differences between whole sentences and single tokens."""

import math

import pytest
import torch

from normlab.inspection.model.stepwise import differences


def test_differences_of_stepwise_logits_match_hand_calculations():
    whole = torch.tensor([[0.0, math.log(3)], [0.0, 0.0], [1.0, 0.0]])
    steps = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [1.0, 0.0]])
    targets = torch.tensor([0, 1, 0])
    compared = differences(whole, steps, targets)
    assert compared.tokens == 3 and compared.changed == pytest.approx(1 / 3)
    assert (compared.mean, compared.largest) == pytest.approx((math.log(3) / 3, math.log(3)))
    gain = compared.whole_loss - compared.stepwise_loss
    assert gain == pytest.approx(math.log(3) / 3) and not compared.same
    assert differences(whole, whole, targets).same
