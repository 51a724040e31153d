"""Runs on images: scores, baselines and refused settings."""

import numpy as np
import pytest

from normlab.config.compose import compose
from normlab.training import train
from tests.tasks.image_models import SMALL, model_of


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("task=digits", "placement=post"), "a residual network .*omit placement="),
        (("task=digits", "norm@ffn_inner_norm=bn"), "sets a norm that this model does not have"),
        (("task=digits", "model=tiny"), "model=resnet8, resnet20, vit"),
        (("task=toy", "task.corpus.size=50", "model=resnet8"), "model=tiny, mini, small"),
        (("task=digits", "model=vit", "model.patch=3"), "patch=3 does not divide .* 8x8"),
        (("task=digits", "max_tokens=100"), "measured in pictures, not tokens; set batch_size"),
        (("task=digits", "+task.length_buckets=[32]"), "pictures have no length in tokens"),
        (("task=digits", "task.source.valid_size=1790"), "valid_size=1790: there are"),
        (("task=digits", "task.source.valid_size=1"), "valid_size=1: .* no pictures; set it to 10"),
    ],
)
def test_invalid_image_settings_raise_an_error(overrides, message):
    with pytest.raises(ValueError, match=message):
        model_of(*overrides)


def test_an_image_run_records_its_scores_and_baselines(tmp_path):
    steps = ("budget.steps=6", "validate.every=3", "schedule.warmup=2", "batch_size=50")
    tests = ("task.test_batch_sizes=[]", "task.test_eval_stats=[batch]", "norm=bn", "sink=[]")
    record = train(compose([*SMALL, *steps, *tests, f"runs_dir={tmp_path}"]))
    assert record.outcome.status == "finished"
    accuracy = record.scores["test/accuracy"]
    assert (accuracy.n, accuracy.higher_is_better) == (299, True)
    assert record.floors["accuracy"] == pytest.approx(30 / 299)
    assert record.floors["loss"] == pytest.approx(np.log(10), abs=1e-3)
    assert 0 <= record.scores["test/calibration_error"].value <= 1
    assert record.data["label"] == "digits 8x8" and record.budget.tokens == 300
    assert "test/eval_stats_batch/accuracy" in record.scores
