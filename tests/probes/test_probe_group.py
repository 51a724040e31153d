import pytest
import torch
from torch import nn

from normlab.probes.base import Probe, ProbeGroup, Series, StepView, to_floats


def view(step: int) -> StepView:
    return StepView(
        step=step,
        model=nn.Identity(),
        loss=torch.tensor(float(step)),
        grad_norm=torch.tensor(1.0),
        lr=0.5,
        tokens=3,
        padding_share=0.0,
    )


class Recorder(Probe):
    def __init__(self, *, every: int):
        super().__init__(every=every)
        self.seen: list[tuple[str, int]] = []

    def before_update(self, view: StepView) -> None:
        assert not torch.is_grad_enabled()
        self.seen.append(("before", view.step))

    def after_update(self, view: StepView) -> None:
        self.seen.append(("after", view.step))
        view.log("loss", view.loss)
        view.log("asked", lambda: 7.0)
        view.log("plain", 2)

    def summary(self) -> dict[str, float]:
        return {"calls": float(len(self.seen))}


def test_a_probe_is_called_at_its_own_steps_in_order():
    probe = Recorder(every=2)
    group = ProbeGroup({"r": probe})
    for step in range(1, 6):
        group.before_update(view(step))
        group.after_update(view(step))
    assert probe.seen == [("before", 2), ("after", 2), ("before", 4), ("after", 4)]
    assert group.summary() == {"stability/r/calls": 4.0}


def test_metrics_are_the_latest_values_under_the_name_and_are_forgotten_after():
    group = ProbeGroup({"r": Recorder(every=2)})
    for step in range(1, 6):
        group.after_update(view(step))
    assert group.metrics() == {
        "stability/r/loss": 4.0,
        "stability/r/asked": 7.0,
        "stability/r/plain": 2.0,
    }
    assert group.metrics() == {}


def test_what_the_view_shows_cannot_be_replaced():
    with pytest.raises(AttributeError):
        view(1).step = 2  # type: ignore[misc]


def test_a_state_of_other_probes_is_no_error():
    group = ProbeGroup({"r": Recorder(every=1)})
    group.load_state_dict({"gone": {"count": 1}})
    assert group.state_dict() == {"r": {}}


def test_every_must_be_positive():
    with pytest.raises(ValueError, match="every: 0"):
        Recorder(every=0)


def test_a_series_hands_values_on_in_order_and_only_in_bulk():
    got: list[float] = []
    series = Series(got.append, flush_every=3)
    for value in (1.0, 2.0):
        series.append(torch.tensor(value))
    assert got == []
    series.append(torch.tensor(3.0))
    series.append(torch.tensor(4.0))
    assert got == [1.0, 2.0, 3.0]
    series.flush()
    assert got == [1.0, 2.0, 3.0, 4.0]


def test_mixed_types_and_shapes_become_floats():
    values = [torch.tensor([1.5]), torch.tensor(2, dtype=torch.int64), torch.tensor(0.1).double()]
    assert to_floats(values) == [1.5, 2.0, float(torch.tensor(0.1))]
