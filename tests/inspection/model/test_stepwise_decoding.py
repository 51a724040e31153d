"""Differences between whole sentences and single tokens."""

import math

import pytest
import torch

from normlab.inspection.model.stepwise_decoding import differences


def test_differences_of_stepwise_logits_match_hand_calculations():
    whole = torch.tensor([[0.0, math.log(3)], [0.0, 0.0], [1.0, 0.0]])
    steps = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [1.0, 0.0]])
    targets = torch.tensor([0, 1, 0])
    found = differences(whole, steps, targets)
    assert found["tokens"] == 3 and found["changed"] == pytest.approx(1 / 3)
    assert [*found["difference"].values()] == pytest.approx([math.log(3) / 3, math.log(3)])
    gain = found["loss"]["whole"] - found["loss"]["stepwise"]
    assert gain == pytest.approx(math.log(3) / 3) and not found["same"]
    assert differences(whole, whole, targets)["same"]
