"""The probe of a change of sequence length, on losses made by hand."""

import math

import pytest
import torch
from torch import nn

from normlab.config.compose import compose
from normlab.probes.base import StepView
from normlab.probes.length_change import LengthChangeProbe
from tests.models.small import seq2seq


def watch(losses, *, step, model=None, window=4, smooth=2):
    probe = LengthChangeProbe(step=step, window=window, smooth=smooth, eps=1e-5)
    probe.attach(model or nn.Linear(2, 2))
    for number, loss in enumerate(losses, 1):
        probe.before_forward(number)
        view = StepView(number, nn.Linear(2, 2), torch.tensor(loss), torch.tensor(1.0), 0.1, 5, 0.0)
        probe.before_update(view)
    return probe


def test_figures_by_hand():
    # The level is the mean of steps 3 to 6; the change is at step 7.
    found = watch([9.0, 9.0, 2.0, 3.0, 2.0, 1.0, 5.0, 4.0, 2.0, 2.0, 1.0, 9.0], step=7).summary()
    assert found == {"loss_before": 2.0, "loss_jump": 2.5, "recovery": 4.0}


def test_a_loss_that_stays_high_is_never_recovered_from():
    assert watch([1.0] * 6 + [2.0] * 9, step=7).summary()["recovery"] == math.inf


@pytest.mark.parametrize(("losses", "step"), [([1.0] * 9, None), ([1.0] * 5, 7), ([1.0] * 7, 7)])
def test_without_enough_steps_there_is_nothing_to_say(losses, step):
    assert watch(losses, step=step).summary() == {}


def test_a_change_in_the_first_steps_has_fewer_before_it():
    assert watch([3.0, 1.0, 2.0, 2.0], step=3).summary()["loss_before"] == 2.0


def test_statistics_that_no_longer_fit_are_seen():
    model = seq2seq("bn", "pre", encoder_layers=1, decoder_layers=1).train()
    norm = model.encoder.layers[0].self_residual.norm
    probe = LengthChangeProbe(step=31, window=10, smooth=2, eps=1e-5)
    probe.attach(norm)
    generator = torch.Generator().manual_seed(0)
    from normlab.norms.base import Stream

    for step in range(1, 35):
        x = torch.randn(4, 6, norm.dim, generator=generator) + (3.0 if step > 30 else 0.0)
        probe.before_forward(step)
        norm(x, Stream(torch.ones(4, 6, dtype=torch.bool)))
        view = StepView(step, norm, torch.tensor(1.0), torch.tensor(1.0), 0.1, 5, 0.0)
        probe.before_update(view)
    found = probe.summary()
    assert found["tid_before"] < 0.5 and found["tid_after"] > 2.0


def test_the_step_is_that_of_the_task():
    change = ["task.length_change.step=7", "task.length_change.max_length=256"]
    node = compose(["task=mlm", "probe=[length_change]", *change]).observe.probe.length_change
    assert node.step == 7
    assert compose(["task=toy", "probe=full"]).observe.probe.length_change.step is None
