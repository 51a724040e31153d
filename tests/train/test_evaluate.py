"""Scoring: what it leaves as it was, and that a loaded run has the scores of its record."""

from pathlib import Path

import pytest
import torch

import normlab
from normlab.norms.base import running_norms
from tests.train.trainers import build_trainer, weights


@pytest.fixture
def trained(corpus: Path, tmp_path: Path):
    trainer = build_trainer(
        corpus, tmp_path, "norm=bn", "norm.eval_stats=recalibrated", "norm.momentum=0.01"
    )
    for _ in range(3):
        trainer.step()
    return trainer


def test_recalibration_puts_back_what_was(trained):
    before, random = weights(trained.model), torch.get_rng_state()
    trained.evaluator.scores(trained.model, "valid")
    after = weights(trained.model)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert torch.equal(torch.get_rng_state(), random)
    assert trained.model.training
    assert all(module.training for module in trained.model.modules())


def test_recalibrated_statistics_are_those_that_score(trained):
    """A small momentum leaves the running statistics far from those of the data."""
    fresh = trained.evaluator.scores(trained.model, "valid")["valid/loss"].value
    for norm in running_norms(trained.model):
        norm.eval_stats = "running"
    running = trained.evaluator.scores(trained.model, "valid")["valid/loss"].value
    assert abs(fresh - running) > 1e-3
    forced = trained.evaluator.scores(trained.model, "valid", recalibrate=True)
    assert forced["valid/loss"].value == fresh


def test_a_loaded_run_has_the_scores_of_its_record(undisturbed: Path):
    """The run's test scores averaged weights under re-estimated statistics."""
    run = normlab.load_run(undisturbed)
    found = run.evaluate("test")
    assert {name: run.record.scores[name] for name in found} == found
    assert not run.model.training
