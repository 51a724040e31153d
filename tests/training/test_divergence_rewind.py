"""Losses are read when a row is logged. If the run has diverged, its steps are repeated."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from normlab.config.instantiation import instantiate
from normlab.probes.base import Probe, ProbeGroup
from normlab.training.divergence import Diverged
from normlab.training.trainer import StepBatches, Trainer
from tests.tiny_runs import tiny
from tests.training.trainers import build_trainer, compose, largest_difference, to_dict, weights


def with_probes(corpus: Path, folder: Path, *overrides: str) -> Trainer:
    """Return a trainer with the default probes, all measuring every step."""
    trainer = build_trainer(corpus, folder, *overrides)
    nodes = to_dict(compose(tiny(corpus, folder, *overrides)))["observe"]["probe"]
    often = {
        name: {**node, "every": 1} if "every" in node else node for name, node in nodes.items()
    }
    built = {name: instantiate(n, f"observe.probe.{name}", Probe) for name, n in often.items()}
    trainer.probes = ProbeGroup(built)
    trainer.start()
    return trainer


def poisoned(trainer: Trainer, at: int, steps: int) -> tuple[Diverged, dict[str, Any]]:
    """Take steps, one with a NaN in the weights. Return how the run ended, and its state."""
    name = next(n for n, _ in trainer.model.named_parameters() if "fc1.weight" in n)
    original = trainer._backward

    def backward(drawn: StepBatches) -> tuple[torch.Tensor, torch.Tensor]:
        if drawn.step == at:
            with torch.no_grad():
                trainer.model.get_parameter(name).flatten()[0] = math.nan
        return original(drawn)

    trainer._backward = backward  # type: ignore[method-assign]
    with pytest.raises(Diverged) as ended:
        for _ in range(steps):
            trainer.step()
    return ended.value, {
        "progress": (trainer.counters.step, trainer.counters.tokens),
        "recent": trainer.probes.recent(),
        "summary": trainer.probes.summary(),
    }


@pytest.mark.parametrize("norm", ["ln", "bn", "brn", "pn", "mabn"])
def test_reading_losses_only_at_rows_finds_the_same_nan_as_reading_every_step(
    norm: str, corpus: Path, tmp_path: Path
):
    values = (f"norm={norm}", "validate.every=100", "budget.steps=100")
    values += ("observe.checkpoint_every=100",)
    ends = []
    for every in (1, 7):
        trainer = with_probes(corpus, tmp_path, *values, f"observe.log_every={every}")
        diverged, state = poisoned(trainer, 5, 7)
        ends.append((diverged.step, diverged.reason, diverged.layer, state, trainer.model))
    (*at_once, first), (*at_the_row, second) = ends
    assert at_the_row == at_once and at_once[:2] == [5, "loss is nan"] and at_once[2]
    a, b = (
        {k: v.nan_to_num() for k, v in weights(model).items() if v.is_floating_point()}
        for model in (first, second)
    )
    assert largest_difference(a, b) == 0
