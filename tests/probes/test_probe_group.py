import pytest
import torch
from torch import nn

from normlab.norms.base import Stream
from normlab.probes.base import Probe, ProbeGroup, StepView, Values, to_floats
from normlab.probes.sites import Seen
from normlab.train.build import make_norm


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
        group.before_update(view(step))
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
    group.load_state_dict({"probes": {"gone": {"count": 1}}, "latest": {}, "recent": []})
    assert group.state_dict()["probes"] == {"r": {"_kept": {}}}


def test_the_last_fifty_steps_are_kept_with_gaps_where_nobody_looked():
    group = ProbeGroup({"r": Recorder(every=2)})
    for step in range(1, 61):
        group.before_update(view(step))
        group.after_update(view(step))
    recent = group.recent()
    assert recent["step"] == [float(step) for step in range(11, 61)]
    assert recent["train/loss"] == recent["step"]
    assert recent["train/lr"] == [0.5] * 50
    assert recent["stability/r/loss"] == [None, 12.0] + [
        value for step in range(13, 61, 2) for value in (None, step + 1.0)
    ]
    assert "stability/r/asked" not in recent  # what is asked later would be of a later step


def test_what_awaits_a_row_and_the_last_steps_survive_a_checkpoint():
    group, resumed = (ProbeGroup({"r": Recorder(every=2)}) for _ in range(2))
    for step in range(1, 4):
        group.before_update(view(step))
        group.after_update(view(step))
    resumed.load_state_dict(group.state_dict())
    assert resumed.recent() == group.recent()
    assert resumed.metrics() == group.metrics() != {}


def test_every_must_be_positive():
    with pytest.raises(ValueError, match="every: 0"):
        Recorder(every=0)


def test_what_is_heard_later_comes_in_order_and_only_in_bulk():
    class Ear(Probe):
        def __init__(self):
            super().__init__()
            self.heard: list[float] = []

        def hear(self, *, loss: float) -> None:
            self.heard.append(loss)

    probe = Ear()
    for value in range(31):
        probe.later(loss=torch.tensor(float(value)))
    assert probe.heard == []
    probe.later(loss=torch.tensor(31.0))
    probe.later(loss=torch.tensor(32.0))
    assert probe.heard == list(range(32))
    probe.flush()
    assert probe.heard == list(range(33))


def test_mixed_types_and_shapes_become_floats():
    values = [torch.tensor([1.5]), torch.tensor(2, dtype=torch.int64), torch.tensor(0.1).double()]
    assert to_floats(values) == [1.5, 2.0, float(torch.tensor(0.1))]


def test_a_probe_says_only_where_and_what_it_measures():
    class Size(Probe):
        at = ("norm",)
        largest = ("size",)

        def measure(self, seen: Seen) -> Values:
            x, real = seen.input
            return {"size": x[real].abs().amax()}

    norm = make_norm("ln", 4)
    group = ProbeGroup({"s": Size(every=2), "none": Size()})
    group.probes["s"].attach(nn.ModuleDict({"final_norm": norm}))
    group.probes["none"].attach(nn.Linear(2, 2))
    valid = torch.tensor([[True, False]])
    for step, largest in ((1, 9.0), (2, 3.0), (4, 2.0)):
        group.before_forward(step)
        norm(torch.tensor([[[1.0, -largest, 0.0, 1.0], [50.0, 0.0, 0.0, 1.0]]]), Stream(valid))
        group.before_update(view(step))
    assert group.summary() == {"stability/s/size": 3.0, "stability/s/size/final": 3.0}
    assert group.notice == "probes that do not apply: none (the model has no norms)"
