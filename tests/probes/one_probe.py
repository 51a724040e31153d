"""Gradient steps of a small translation model with one probe."""

import torch
from torch import nn

from normlab.probes.base import Probe, ProbeGroup, StepView
from tests.models.small import logits, sentences

LENGTHS = [4, 5, 2], [3, 6, 4]


def view(step: int, model: nn.Module) -> StepView:
    one = torch.tensor(1.0)
    return StepView(step, model, one, one, 0.1, padding_share=0.25)


def observed(probe: Probe, model: nn.Module, *, steps: int = 1, seed: int = 0) -> dict[str, float]:
    """Take plain gradient steps with one probe; return the last step's row."""
    group = ProbeGroup({"p": probe})
    group.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    row: dict[str, float] = {}
    for step in range(1, steps + 1):
        group.before_forward(step)
        source, _ = sentences(LENGTHS[0], seed=seed + step)
        target, _ = sentences(LENGTHS[1], seed=seed + step + 99)
        optimizer.zero_grad()
        logits(model, source, target).square().mean().backward()
        seen = view(step, model)
        group.before_update(seen)
        optimizer.step()
        group.after_update(seen)
        row = group.metrics()
    return {name.removeprefix("stability/p/"): value for name, value in row.items()}
