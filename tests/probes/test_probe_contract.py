"""What every probe of the config folder must keep to; a new one is tested by being there."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from normlab.config.registry import CONFIG_DIR, instantiate
from normlab.probes.base import Probe, ProbeGroup, StepView
from tests.models.small import logits, sentences, seq2seq

FOLDER = Path(CONFIG_DIR) / "probe"
FILES = [path for path in sorted(FOLDER.glob("*.yaml")) if path.stem != "full"]


def build(path: Path) -> Probe:
    """Build a probe that looks at every second step at least, over windows that fill."""
    node = yaml.safe_load(path.read_text())
    node |= {"every": 2} if "every" in node else {}
    node |= {"window": 10} if path.stem == "fluctuation" else {}
    node |= {"samples": 2, "tokens": 2} if path.stem == "independence" else {}
    node |= {"step": 8, "window": 5, "smooth": 3} if path.stem == "length_change" else {}
    return instantiate(node, f"observe.probe.{path.stem}", Probe)


def train(probes: dict[str, Probe], *, steps: int, start: int = 0, group_state: Any = None):
    """Train a small translator with dropout, running norms and Adam; return what could change."""
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


def test_full_has_every_probe():
    full = yaml.safe_load((FOLDER / "full.yaml").read_text())
    assert sorted(full["defaults"]) == [path.stem for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_package_header_names_the_node(path: Path):
    assert path.read_text().splitlines()[0] == f"# @package observe.probe.{path.stem}"


def test_ten_steps_with_all_probes_and_with_none_are_bitwise_equal():
    _, _, alone = train({}, steps=10)
    _, _, watched = train({path.stem: build(path) for path in FILES}, steps=10)
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_resumed_run_has_the_summary_and_rows_of_one_left_alone(path: Path):
    whole, rows, _ = train({"p": build(path)}, steps=40)
    first, _, _ = train({"p": build(path)}, steps=15)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    resumed, later, _ = train({"p": build(path)}, steps=40, start=15, group_state=state)
    assert resumed.summary() == whole.summary()
    assert later == rows[15:]
    assert whole.summary()
    assert all(name.startswith("stability/p/") for name in whole.summary())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_summary_before_the_first_step_is_finite(path: Path):
    assert all(value == value for value in build(path).summary().values())
