"""What every probe of the config folder must keep to; a new one is tested by being there."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from normlab.instantiate import instantiate
from normlab.probes.base import Probe, ProbeGroup, StepView
from normlab.registry import CONFIG_DIR

FILES = sorted((Path(CONFIG_DIR) / "probe").glob("*.yaml"))


def build(path: Path) -> Probe:
    return instantiate(yaml.safe_load(path.read_text()), f"observe.probe.{path.stem}")


def train(probes: dict[str, Probe], *, steps: int, start: int = 0, group_state: Any = None):
    """Train a small stack with dropout, a running norm and Adam; return all that could change."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    group = ProbeGroup(probes)
    if group_state is not None:
        group.load_state_dict(group_state)
    group.attach(model)
    rows = []
    for step in range(1, steps + 1):
        loss = model(torch.randn(6, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        if step > start:
            view = StepView(
                step=step,
                model=model,
                loss=loss.detach(),
                grad_norm=norm,
                lr=0.1,
                tokens=6,
                padding_share=1 / (step + 1),
            )
            group.before_update(view)
        optimizer.step()
        if step > start:
            group.after_update(view)
            rows.append(group.metrics())
    grads = [p.grad for p in model.parameters()]
    return group, rows, [*model.state_dict().values(), *grads, torch.get_rng_state()]


def test_the_folder_has_the_probes():
    assert {path.stem for path in FILES} >= {"spikes", "grad_norm", "padding"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_package_header_names_the_node(path: Path):
    assert path.read_text().splitlines()[0] == f"# @package observe.probe.{path.stem}"


def test_ten_steps_with_all_probes_and_with_none_are_bitwise_equal():
    _, _, alone = train({}, steps=10)
    _, _, watched = train({path.stem: build(path) for path in FILES}, steps=10)
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_resumed_run_has_the_summary_and_rows_of_one_left_alone(path: Path):
    whole, rows, _ = train({"p": build(path)}, steps=150)
    first, _, _ = train({"p": build(path)}, steps=61)
    state = json.loads(json.dumps(first.state_dict()))  # plain values only
    resumed, later, _ = train({"p": build(path)}, steps=150, start=61, group_state=state)
    assert resumed.summary() == whole.summary()
    assert later == rows[61:]
    assert whole.summary()
    assert all(name.startswith("stability/p/") for name in whole.summary())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_summary_before_the_first_step_is_finite(path: Path):
    assert all(value == value for value in build(path).summary().values())
