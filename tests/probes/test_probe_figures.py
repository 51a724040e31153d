"""The figures of the probes, worked out by hand."""

import math
import statistics

import pytest
import torch
from torch import nn

from normlab.probes.base import Probe, StepView
from normlab.probes.loss import GradNorm, LossSpikes
from normlab.probes.statistics import Padding


def feed(probe: Probe, *, losses=None, norms=None, shares=None) -> dict[str, float]:
    probe.attach(nn.Identity())
    for step, value in enumerate(losses or norms or shares, start=1):
        view = StepView(
            step=step,
            model=nn.Identity(),
            loss=torch.tensor(value if losses else 1.0).double(),
            grad_norm=torch.tensor(value if norms else 1.0).double(),
            lr=0.1,
            tokens=1,
            padding_share=value if shares else 0.0,
        )
        probe.before_update(view)
        probe.after_update(view)
    return probe.summary()


def spikes(**changes) -> LossSpikes:
    return LossSpikes(**{"window": 4, "threshold": 2.0, "min_history": 4, **changes})


# Of 1, 3, 1, 3 the mean is 2 and the sample variance 4/3: the limit at 2 sd is 2 + 4/sqrt(3).
NOISE = [1.0, 3.0, 1.0, 3.0]
LIMIT = 2 + 4 / math.sqrt(3)


def test_a_loss_above_the_limit_is_a_spike_and_its_size_is_above_the_mean():
    result = feed(spikes(), losses=[*NOISE, LIMIT + 0.01])
    assert result["count"] == 1.0
    assert result["size"] == pytest.approx(4 / math.sqrt(3) + 0.01)
    result = feed(spikes(), losses=[*NOISE, LIMIT - 0.01])
    assert result == {"count": 0.0, "size": 0.0, "recovery": 0.0}


def test_consecutive_losses_above_the_limit_are_one_spike_with_the_largest_size():
    assert feed(spikes(), losses=[*NOISE, 10.0, 20.0, 2.0, 2.0])["count"] == 1.0
    # The window at 20 is 3, 1, 3 and the first spike's capped value.
    mean = statistics.fmean([3.0, 1.0, 3.0, LIMIT])
    assert feed(spikes(), losses=[*NOISE, 10.0, 20.0])["size"] == pytest.approx(20 - mean)


def test_a_spike_does_not_hide_the_next():
    assert feed(spikes(), losses=[*NOISE, 1000.0, 1.0, 1000.0])["count"] == 2.0


def test_a_loss_that_stays_high_is_one_spike_and_ends():
    probe = spikes()
    result = feed(probe, losses=[*NOISE, *[8.0] * 50])
    assert result["count"] == 1.0
    assert probe.state_dict()["_window"] == [8.0] * 4


def test_a_falling_loss_and_too_short_a_history_have_no_spikes():
    assert feed(spikes(), losses=[10.0 / step for step in range(1, 100)])["count"] == 0.0
    assert feed(spikes(), losses=[1.0, 1.0, 50.0])["count"] == 0.0


def test_a_loss_that_is_not_finite_is_left_out():
    assert feed(spikes(), losses=[*NOISE, math.nan, math.inf])["count"] == 0.0
    assert feed(spikes(), losses=[*NOISE, math.nan, LIMIT + 1])["count"] == 1.0


@pytest.mark.parametrize("changes", [{"min_history": 1}, {"min_history": 5}])
def test_a_history_that_cannot_be_is_refused(changes):
    with pytest.raises(ValueError, match="min_history"):
        spikes(**changes)


def test_grad_norm_mean_max_and_noise_within_windows():
    result = feed(GradNorm(window=2), norms=[1.0, 3.0, 10.0, 30.0, 5.0])
    # Each full window has mean m and 2 m between its values: sd over mean is sqrt(2) / 2.
    # The last step is alone, without a spread.
    assert result == {
        "nonfinite": 0.0,
        "mean": 9.8,
        "max": 30.0,
        "noise": pytest.approx(math.sqrt(2) / 2),
    }


def test_windows_count_by_their_length_and_a_short_last_one_counts():
    result = feed(GradNorm(window=3), norms=[2.0, 2.0, 2.0, 1.0, 3.0])
    assert result["noise"] == pytest.approx((3 * 0 + 2 * math.sqrt(2) / 2) / 5)


def test_a_trend_over_the_run_is_not_noise():
    assert feed(GradNorm(window=10), norms=[8.0] * 10 + [1.0] * 10)["noise"] == 0.0


def test_norms_that_are_not_finite_are_counted_apart():
    result = feed(GradNorm(window=2), norms=[1.0, math.inf, 3.0, math.nan])
    assert (result["nonfinite"], result["mean"], result["max"]) == (2.0, 2.0, 3.0)


def test_figures_without_enough_steps_are_left_out():
    assert GradNorm(window=2).summary() == {"nonfinite": 0.0}
    assert "noise" not in feed(GradNorm(window=2), norms=[1.0])
    with pytest.raises(ValueError, match="window: 1"):
        GradNorm(window=1)


def test_recovery_is_the_steps_until_the_loss_is_back_where_the_spike_began():
    mean = 2.0  # of NOISE
    result = feed(spikes(), losses=[*NOISE, 10.0, 3.0, 2.5, mean, 5.0])
    assert result["recovery"] == 3.0
    assert feed(spikes(), losses=[*NOISE, 10.0, 3.0])["recovery"] == 1.0  # not over at the end
    assert feed(spikes(), losses=NOISE)["recovery"] == 0.0


def test_padding_is_averaged_over_steps():
    assert feed(Padding(), shares=[0.25, 0.5, 0.75]) == {"share": 0.5, "max": 0.75}
    assert Padding().summary() == {}
