"""The estimate of the time left."""

import itertools
from types import SimpleNamespace

import pytest

from normlab.stages import Pace, Stage


@pytest.mark.parametrize("total", [40, None])
def test_after_training_the_remaining_time_is_estimated_for_the_test(monkeypatch, total):
    clock = itertools.count(1000.0, 10.0)
    monkeypatch.setattr("normlab.stages.time", SimpleNamespace(monotonic=lambda: next(clock)))
    pace = Pace()
    pace.see(Stage("training", 10, total, 2.0, 0.25))
    pace.see(Stage("training", 20, total, 2.0, 0.5))
    pace.see(Stage("validating", 3, 7))  # a validation during training
    assert not pace.trained and pace.left == 10 / 0.25 * 0.5
    pace.see(Stage("training", 40, total, 2.0, 1.0))
    assert pace.trained and pace.left is None
    pace.see(Stage("testing"))
    pace.see(Stage("testing", 0, 200))
    assert pace.left is None
    pace.see(Stage("testing", 50, 200))
    assert pace.left == 2 * 10 / 0.25 * 0.75


def test_the_time_left_follows_recent_step_times_and_adds_the_mean_share_of_pauses(monkeypatch):
    """A machine that was busy for the first third of a run says nothing about the rest."""
    now = [0.0]
    monkeypatch.setattr("normlab.stages.time", SimpleNamespace(monotonic=lambda: now[0]))
    pace = Pace()
    for step in range(1, 601):
        now[0] += 10.0 if step <= 20 else 1.0
        pace.see(Stage("training", step, 1000, 2.0, step / 1000))
    assert pace.left == pytest.approx(400, rel=0.02)
    now[0] += 300.0
    pace.see(Stage("validating", 3, 7))
    assert pace.left == pytest.approx(400, rel=0.02), (
        "a validation does not change it while it runs"
    )
    now[0] += 299.0
    pace.see(Stage("training", 601, 1000, 2.0, 0.601))
    assert pace.left == pytest.approx(399 + 599 * 399 / 600, rel=0.02)
