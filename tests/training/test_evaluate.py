"""Scoring: recalibration, loaded runs, and scores on training examples."""

import math
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import normlab
from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.distributed.process_group import Shard
from normlab.norms.running import running_norms
from normlab.training.build import build_evaluator, build_model, build_task
from normlab.training.evaluate import Weights, whole
from normlab.training.runtime import Runtime
from tests.training.trainers import build_trainer

ALONE = Runtime(torch.device("cpu"), "fp64", Shard(0, 1))


@pytest.fixture
def trained(corpus: Path, tmp_path: Path):
    trainer = build_trainer(
        corpus, tmp_path, "norm=bn", "norm.eval_stats=recalibrated", "norm.momentum=0.01"
    )
    for _ in range(3):
        trainer.step()
    return trainer


def test_scoring_uses_recalibrated_statistics(trained):
    """A small momentum leaves the running statistics far from the statistics of the data."""
    fresh = trained.evaluator.scores(trained.model, "valid")["valid/loss"].value
    for norm in running_norms(trained.model):
        norm.eval_stats = "running"
    running = trained.evaluator.scores(trained.model, "valid")["valid/loss"].value
    assert abs(fresh - running) > 1e-3
    forced = trained.evaluator.scores(trained.model, "valid", recalibrate=True)
    assert forced["valid/loss"].value == fresh


def test_an_exception_while_scoring_leaves_the_model_in_training_mode(trained, monkeypatch):
    monkeypatch.setattr(trained.model, "forward", Mock(side_effect=RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        trained.evaluator.scores(trained.model, "valid")
    assert trained.model.training


def test_a_loaded_run_has_the_scores_of_its_record(undisturbed: Path):
    """The run tests averaged weights with recalibrated statistics."""
    torch.set_float32_matmul_precision("highest")
    run = normlab.load_run(undisturbed)
    run.evaluate("valid", limit=1)
    assert torch.get_float32_matmul_precision() == "highest"  # the run's own ends with the call
    found = run.evaluate("test")
    assert {name: run.record.scores[name] for name in found} == found
    assert not run.model.training
    assert torch.get_float32_matmul_precision() == "highest"  # as the caller left it


def built(*overrides):
    config = to_dict(compose([*overrides, "observe.threads=1", "precision=fp64"]))
    task = build_task(config)
    return task, build_evaluator(config, task, ALONE), build_model(config, task).to(torch.float64)


def test_scores_on_all_training_examples_equal_evaluating_the_training_split():
    task, evaluator, model = built("task=digits", "model.width=4", "observe.test_seen=100000")
    everything = task.evaluate(model.eval(), "train", Shard(0, 1))
    assert (
        evaluator.scores_on_training_examples(model)["test/seen/loss"].n
        == everything["loss"].n
        == 1299
    )
    assert evaluator.scores_on_training_examples(model)["test/seen/loss"].value == pytest.approx(
        everything["loss"].value
    )


@pytest.mark.parametrize("loss", [math.nan, -2.0])
def test_a_nan_or_negative_loss_on_training_examples_stays_as_it_is(loss, monkeypatch):
    task, evaluator, model = built("task=digits", "model.width=4", "observe.test_seen=64")
    examples = task.eval_batch_size
    sums = {"loss": torch.tensor(loss * examples, dtype=torch.float64)}
    monkeypatch.setattr(task, "losses", lambda model, batch: sums)
    found = evaluator.scores_on_training_examples(model)["test/seen/loss"]
    assert found.value == pytest.approx(loss, nan_ok=True)


@pytest.mark.parametrize(("asked", "names"), [(0, set()), (500, {"test/seen/loss"})])
def test_training_examples_are_scored_only_on_request(asked, names, tmp_path):
    _, evaluator, model = built("task=digits", "model.width=4", f"observe.test_seen={asked}")
    scores = evaluator.test(model, Weights("last", 1, model.state_dict()), outputs=tmp_path)
    assert {name for name in scores if "seen" in name} == names
    assert not names & set(whole(scores))
