"""The calls of modules in a forward pass."""

import torch
from torch import nn

from normlab.any_model.batches.from_batch import example_of
from normlab.any_model.tracing.calls import Runner


def test_calls_are_in_order_and_safe_from_later_in_place_changes():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    calls, y = Runner(model).record(example_of(model, torch.randn(2, 3)))
    assert [call.name for call in calls] == ["", "0", "1"]
    assert bool((calls[1].output < 0).any()) and torch.equal(calls[2].output, y["output"])
