"""The contract of every probe in the config folder, and what the base class and the group do."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from normlab.config.folders import CONFIG_DIR
from normlab.config.instantiation import instantiate
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from normlab.probes.base import Probe, ProbeGroup, StepView, Values
from normlab.probes.sites import ABSENT, ModuleCall
from tests.models.small import logits, sentences, seq2seq

FOLDER = Path(CONFIG_DIR) / "probe"
FILES = sorted(FOLDER.glob("*.yaml"))


def build(path: Path) -> Probe:
    """Build a probe that measures at least every second step, with windows that fill up."""
    node = yaml.safe_load(path.read_text())
    node |= {"every": 2} if "every" in node else {}
    node |= {"window": 4} if path.stem == "fluctuation" else {}
    node |= {"samples": 2, "tokens": 2} if path.stem == "independence" else {}
    node |= {"tokens": 0} if path.stem == "rank" else {}
    node |= {"step": 8, "window": 5, "smooth": 3} if path.stem == "length_change" else {}
    return instantiate(node, f"observe.probe.{path.stem}", Probe)


def train(probes: dict[str, Probe], *, steps: int, start: int = 0, group_state: Any = None):
    """Train a small translator with dropout, running norms and Adam; return all mutable state."""
    torch.manual_seed(0)
    model = seq2seq("bn", "pre", dropout=0.5, encoder_layers=1, decoder_layers=1).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    group = ProbeGroup(probes)
    if group_state is not None:
        group.load_state_dict(group_state)
    group.attach(model)
    rows = []
    for step in range(1, steps + 1):
        source, _ = sentences([4, 5, 2], seed=step)
        target, _ = sentences([3, 6, 4], seed=1000 + step)
        if step > start:
            group.before_forward(step)
        loss = logits(model, source, target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        seen = StepView(step, model, loss.detach(), norm, 0.1, 1 / (step + 1))
        if step > start:
            group.before_update(seen)
        optimizer.step()
        if step > start:
            group.after_update(seen)
            rows.append(group.metrics())
    grads = [p.grad for p in model.parameters()]
    return group, rows, [*model.state_dict().values(), *grads, torch.get_rng_state()]


def test_training_with_all_probes_is_bitwise_equal_to_training_without_probes():
    _, _, alone = train({}, steps=6)
    _, _, watched = train({path.stem: build(path) for path in FILES}, steps=6)
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))


def test_a_resumed_run_has_the_same_summary_and_rows_as_an_uninterrupted_one():
    def probes():
        return {path.stem: build(path) for path in FILES}

    whole, rows, _ = train(probes(), steps=14)
    first, _, _ = train(probes(), steps=9)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    resumed, later, _ = train(probes(), steps=14, start=9, group_state=state)
    assert resumed.summary() == whole.summary() and later == rows[9:]
    seen = {name.split("/")[1] for name in whole.summary()}
    assert seen == {path.stem for path in FILES} - {"saturation"}  # there is no bounded norm


# Base and group ---------------------------------------------------------------------------------


def view(step: int) -> StepView:
    return StepView(step, nn.Identity(), torch.tensor(float(step)), torch.tensor(1.0), 0.5, 0.0)


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


def recorded(steps: int) -> ProbeGroup:
    group = ProbeGroup({"r": Recorder(every=2)})
    for step in range(1, steps + 1):
        group.before_update(view(step))
        group.after_update(view(step))
    return group


def test_a_probe_runs_at_every_nth_step_and_its_latest_values_are_returned_once():
    group = recorded(5)
    assert group.probes["r"].seen == [("before", 2), ("after", 2), ("before", 4), ("after", 4)]
    latest = {"stability/r/loss": 4.0, "stability/r/asked": 7.0, "stability/r/plain": 2.0}
    assert group.metrics() == latest
    assert group.metrics() == {}


def test_the_last_fifty_steps_are_kept_with_gaps_where_no_probe_measured():
    group = recorded(60)
    recent = group.recent()
    assert recent["step"] == recent["train/loss"] == [float(step) for step in range(11, 61)]
    assert recent["stability/r/loss"][:3] == [None, 12.0, None]
    assert "stability/r/asked" not in recent  # a later call would describe a later step
    resumed = ProbeGroup({"r": Recorder(every=2)})
    resumed.load_state_dict({**group.state_dict(), "probes": {"gone": {"count": 1}}})
    assert resumed.recent() == recent and resumed.metrics() == group.metrics() != {}


def test_a_probe_class_only_defines_where_and_what_it_measures():
    class Size(Probe):
        kinds = ("norm",)
        largest = ("size",)

        def measure_call(self, call: ModuleCall) -> Values:
            x, real = call.input
            return {"size": x[real].abs().amax()}

    norm = make_norm("ln", 4)
    group = ProbeGroup({"s": Size(every=2), "none": Size()})
    group.probes["s"].attach(nn.ModuleDict({"final_norm": norm}))
    group.probes["none"].attach(nn.Linear(2, 2))
    valid = torch.tensor([[True, False]])
    for step, largest in ((1, 9.0), (2, 3.0), (4, 2.0), (6, float("nan"))):
        group.before_forward(step)
        norm(torch.tensor([[[1.0, -largest, 0.0, 1.0], [50.0, 0.0, 0.0, 1.0]]]), Tokens(valid))
        group.before_update(view(step))
    assert group.summary() == {"stability/s/size": 3.0, "stability/s/size/final_norm": 3.0}
    assert group.notice == "probes that do not apply: none (the model has no norms)"


@pytest.mark.parametrize("kind", ["norm", "residual", "attention", "sublayer", "recurrent norm"])
def test_a_probe_that_finds_no_modules_says_what_the_model_lacks(kind):
    class OfKind(Probe):
        kinds = (kind,)

    probe = OfKind()
    probe.attach(nn.Linear(2, 2))
    assert probe.why_not == ABSENT[kind] and not probe.sites
