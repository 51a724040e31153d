"""Training examples that are tested: their loss is that of a test, of them."""

import pytest
import torch

from normlab.config.compose import compose, to_dict
from normlab.norms.ranks import Shard
from normlab.train.build import build_evaluator, build_model, build_task
from normlab.train.evaluate import Weights, whole
from normlab.train.runtime import Runtime

ALONE = Runtime(torch.device("cpu"), "fp64", Shard(0, 1))


def built(*overrides):
    config = to_dict(compose([*overrides, "observe.threads=1", "precision=fp64"]))
    task = build_task(config)
    return task, build_evaluator(config, task, ALONE), build_model(config, task).to(torch.float64)


def test_all_training_examples_have_the_loss_of_a_test_of_them():
    task, evaluator, model = built("task=digits", "model.width=4", "observe.test_seen=100000")
    everything = task.evaluate(model.eval(), "train", Shard(0, 1))
    assert evaluator.seen(model)["test/seen/loss"].n == everything["loss"].n == 1299
    assert evaluator.seen(model)["test/seen/loss"].value == pytest.approx(everything["loss"].value)


@pytest.mark.parametrize(("asked", "names"), [(0, set()), (500, {"test/seen/loss"})])
def test_a_test_has_training_examples_where_they_are_asked_for(asked, names, tmp_path):
    _, evaluator, model = built("task=digits", "model.width=4", f"observe.test_seen={asked}")
    scores = evaluator.test(model, Weights("last", 1, model.state_dict()), outputs=tmp_path)
    assert {name for name in scores if "seen" in name} == names
    assert not names & set(whole(scores))
