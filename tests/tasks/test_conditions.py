"""Conditions of a test: which norms are recalibrated."""

from unittest.mock import Mock

import pytest
import torch
from torch import nn

from normlab.tasks.base import Task
from normlab.tasks.conditions import Condition, under
from tests.norms.trained_norms import random_batch, trained_norm


@pytest.mark.parametrize("recalibrate", [False, True])
def test_recalibration_leaves_out_norms_with_running_statistics_unless_all_are_stale(recalibrate):
    first, second = trained_norm("bn"), trained_norm("bn", eval_stats="recalibrated")
    model = nn.Sequential(first, second).eval()
    x, _ = random_batch(20)
    trained = first.running_mean.clone()
    task = Mock(spec=Task, losses=lambda model, batch: model(batch))
    with under(Condition(), task, model, [x], recalibrate=recalibrate):
        mean = x.mean((0, 1))[None] if recalibrate else trained
        torch.testing.assert_close(first.running_mean, mean)
        torch.testing.assert_close(second.running_mean[0], first(x).mean((0, 1)))
    assert torch.equal(first.running_mean, trained)
