"""The time of a step: two models take turns, and the ratio is taken within each round."""

from types import SimpleNamespace

import pytest

from normlab.inspection.card import cost
from normlab.inspection.card.examined_norm import examined_norm

MILLISECONDS = {"ln": [10.0, 20.0], "this norm": [15.0, 20.0]}


def test_two_models_take_turns_and_the_ratio_is_the_median_over_rounds(tmp_path, monkeypatch):
    turns = []

    def take(side, steps, _):
        turns.append(side)
        milliseconds = MILLISECONDS[side][turns.count(side) - 1]
        return SimpleNamespace(busy=steps * milliseconds / 1000), None

    monkeypatch.setattr(
        cost,
        "start",
        lambda side, *_: SimpleNamespace(take=lambda steps, clock: take(side, steps, clock)),
    )
    finding = cost.cost(examined_norm(["norm=bn", "scale=smoke"], tmp_path))
    assert turns == ["ln", "this norm", "this norm", "ln"]
    assert finding.values["step"] == pytest.approx([15.0, 17.5, 1.25])
    assert finding.board == {"step x ln": 1.25}


def test_the_reference_is_timed_with_the_same_placement(tmp_path, monkeypatch):
    configs = []
    monkeypatch.setattr(cost, "start", lambda side, config, _: configs.append(config))
    monkeypatch.setattr(cost, "STEPS_PER_TURN", 0)
    cost.step_times(examined_norm(["norm=bn", "placement=post"], tmp_path), rounds=0)
    choices = [(each["choices"]["norm"], each["choices"]["placement"]) for each in configs]
    assert choices == [("ln", "post"), ("bn", "post")]
