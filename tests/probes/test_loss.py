"""Loss spikes, the gradient norm and length changes, compared with cases worked out by hand."""

import math
import statistics

import pytest
import torch
from torch import nn

from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from normlab.probes.base import Probe, StepView
from normlab.probes.loss import GradNorm, LossAtLengthChange, LossSpikes


def feed(probe: Probe, *, losses=None, norms=None) -> dict[str, float]:
    probe.attach(nn.Identity())
    for step, value in enumerate(losses or norms, start=1):
        loss, norm = torch.tensor([value if losses else 1.0, value if norms else 1.0]).double()
        probe.before_forward(step)
        probe.before_update(StepView(step, nn.Identity(), loss, norm, 0.1, 0.0))
    return probe.summary()


def spikes(**changes) -> LossSpikes:
    return LossSpikes(**{"window": 4, "threshold": 2.0, "min_history": 4, **changes})


# Of 1, 3, 1, 3 the mean is 2 and the sample variance 4/3: the limit at 2 sd is 2 + 4/sqrt(3).
NOISE = [1.0, 3.0, 1.0, 3.0]
LIMIT = 2 + 4 / math.sqrt(3)


def test_a_loss_above_the_limit_is_a_spike_whose_size_is_measured_from_the_mean():
    result = feed(spikes(), losses=[*NOISE, LIMIT + 0.01])
    assert (result["count"], result["size"]) == (1.0, pytest.approx(4 / math.sqrt(3) + 0.01))
    result = feed(spikes(), losses=[*NOISE, LIMIT - 0.01])
    assert result == {"count": 0.0, "size": 0.0, "recovery": 0.0}


def test_consecutive_losses_above_the_limit_are_one_spike_with_the_largest_size():
    assert feed(spikes(), losses=[*NOISE, 10.0, 20.0, 2.0, 2.0])["count"] == 1.0
    # The window at 20 is 3, 1, 3 and the first spike's capped value.
    mean = statistics.fmean([3.0, 1.0, 3.0, LIMIT])
    assert feed(spikes(), losses=[*NOISE, 10.0, 20.0])["size"] == pytest.approx(20 - mean)


def test_recovery_is_the_number_of_steps_until_the_loss_is_back_at_its_earlier_level():
    assert feed(spikes(), losses=[*NOISE, 10.0, 3.0, 2.5, 2.0, 5.0])["recovery"] == 3.0
    assert feed(spikes(), losses=[*NOISE, 10.0, 3.0])["recovery"] == 1.0  # not over at the end


@pytest.mark.parametrize(
    ("losses", "count"),
    [
        ([*NOISE, 1000.0, 1.0, 1000.0], 2),  # a spike does not hide the next
        ([*NOISE, *[8.0] * 50], 1),  # a loss that stays high is one spike, which ends
        ([10.0 / step for step in range(1, 100)], 0),
        ([1.0, 1.0, 50.0], 0),  # too short a history
    ],
)
def test_the_number_of_spikes_matches_worked_examples(losses, count):
    assert feed(spikes(), losses=losses)["count"] == count


def test_grad_norm_reports_the_mean_and_the_maximum():
    assert feed(GradNorm(), norms=[1.0, 3.0, 11.0]) == {"mean": 5.0, "max": 11.0}


def change(losses, *, step):
    probe = LossAtLengthChange(step=step, window=4, smooth=2, eps=1e-5)
    return feed(probe, losses=losses)


def test_the_loss_jump_at_a_length_change_matches_a_hand_computed_example():
    # The level is the mean of steps 3 to 6; the change is at step 7.
    found = change([9.0, 9.0, 2.0, 3.0, 2.0, 1.0, 5.0, 4.0, 2.0, 2.0, 1.0, 9.0], step=7)
    assert found == {"loss_before": 2.0, "loss_jump": 2.5, "recovery": 4.0}
    assert change([1.0] * 6 + [2.0] * 9, step=7)["recovery"] == math.inf
    assert change([3.0, 1.0, 2.0, 2.0], step=3)["loss_before"] == 2.0


@pytest.mark.parametrize(("losses", "step"), [([1.0] * 9, None), ([1.0] * 5, 7), ([1.0] * 7, 7)])
def test_a_length_change_is_not_reported_without_enough_steps(losses, step):
    assert change(losses, step=step) == {}


def test_a_length_change_that_makes_running_statistics_stale_raises_the_discrepancy():
    norm = make_norm("bn", 8)
    probe = LossAtLengthChange(step=31, window=10, smooth=2, eps=1e-5)
    probe.attach(norm)
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 35):
        x = torch.randn(4, 6, 8, generator=generator) + (3.0 if step > 30 else 0.0)
        probe.before_forward(step)
        norm(x, Tokens(torch.ones(4, 6, dtype=torch.bool)))
        one = torch.tensor(1.0)
        probe.before_update(StepView(step, norm, one, one, 0.1, 0.0))
    found = probe.summary()
    assert found["tid_before"] < 0.5 and found["tid_after"] > 2.0
