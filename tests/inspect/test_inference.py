"""Running, batch and recalibrated statistics, and decoding token by token, by other ways."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from normlab.inspect import inference
from normlab.inspect.inference import (
    by_length,
    closing,
    differences,
    loss,
)
from normlab.norms.base import Stream, running_norms
from normlab.norms.local import LayerNorm
from tests.inspect.subjects import (
    EVERY_KIND,
    OVER_BATCH,
    OVER_TIME,
    Untouched,
    examined,
    trained,
)


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(inference, "SENTENCES", 40)
    monkeypatch.setattr(inference, "RECALIBRATION_BATCHES", 6)


@EVERY_KIND
def test_every_norm_has_its_losses_and_stays_as_it_was(tmp_path, norm, placement):
    about = trained(tmp_path, f"norm={norm}", f"placement={placement}")
    finding = examined(about, inference.statistics)
    if norm in OVER_BATCH:
        figures = finding.values
        assert figures["gap"] == figures["loss"]["running"] - figures["loss"]["batch"]
        # Seven held-out sentences are one batch at 8, 32 and 128.
        by_size = figures["loss_by_batch_size"]
        assert by_size["8"] == by_size["32"] == by_size["128"] != by_size["1"]
        assert figures["recalibration"]["batches"] == 6
    else:
        assert finding.values["same"]
        assert finding.values["gap"] == 0
        assert "to the last bit" in finding.answer


def test_a_loss_is_that_of_all_target_tokens_in_whatever_batches(tmp_path):
    about = trained(tmp_path, "norm=ln")
    batch = about.batch("valid", range(7))
    with torch.no_grad():
        logits = about.task.stepwise(about.model, batch)[0]
    smoothing = about.config["task"]["label_smoothing"]
    expected = float(F.cross_entropy(logits, batch.tgt_out, label_smoothing=smoothing))
    for size in (1, 3, 7):
        batches = by_length(about, np.arange(7), size=size)
        assert len(batches) == math.ceil(7 / size)
        assert loss(about, batches) == pytest.approx(expected, rel=1e-5)


def test_what_recalibration_closes_is_a_share_of_the_gap():
    assert closing(3.0, 2.0, 2.25) == {"gap": 1.0, "closed": 0.75}
    assert closing(3.0, 2.0, 3.0)["closed"] == 0.0
    assert closing(2.0, 2.0, 2.5) == {"gap": 0.0, "closed": None}
    assert closing(1.0, 2.0, 2.0) == {"gap": -1.0, "closed": None}


def test_a_norm_that_evaluates_by_the_batch_is_also_examined_with_running_statistics(tmp_path):
    running = trained(tmp_path, "norm=bn")
    by_batch = trained(tmp_path, "norm=bn", "norm.eval_stats=batch")
    with Untouched(by_batch):
        found = inference.statistics(by_batch).values
    assert found == inference.statistics(running).values
    assert all(norm.eval_stats == "batch" for norm in running_norms(by_batch.model))


class LoudInTraining(LayerNorm):
    def forward(self, x, stream):
        return super().forward(x, stream) * (3 if self.training else 1)


def test_a_norm_that_does_otherwise_in_training_is_found_out(tmp_path):
    about = trained(tmp_path, "norm=ln")
    model = copy.deepcopy(about.model)
    model.encoder.final_norm = LoudInTraining(16, eps=1e-5, affine=True).eval()
    finding = inference.statistics(replace(about, model=model))
    assert not finding.values["same"]
    assert finding.values["gap"] != 0
    assert "yet" in finding.answer


@EVERY_KIND
def test_in_eval_only_norms_over_time_differ_token_by_token(tmp_path, norm, placement):
    about = trained(tmp_path, f"norm={norm}", f"placement={placement}")
    finding = examined(about, inference.stepwise)
    found = finding.values["eval"]
    assert found["same"] == (norm not in OVER_TIME - OVER_BATCH)
    if found["same"]:
        assert found["difference"]["largest"] < 1e-4
        assert found["changed"] == 0
        assert "the same to rounding" in finding.answer
    else:
        assert found["difference"]["mean"] > 1e-3
        assert found["loss"]["whole"] != pytest.approx(found["loss"]["stepwise"], abs=1e-4)
    assert ("batch" in finding.values) == (norm in OVER_BATCH)


def test_the_loss_step_by_step_is_that_of_each_prefix_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(inference, "DECODED", 2)
    about = trained(tmp_path, "norm=in")
    found, tokens = 0.0, 0
    for index in about.generator("stepwise").permutation(7)[:2].tolist():
        batch = about.batch("valid", [index])
        source = Stream(batch.source_valid)
        for end in range(1, batch.tgt_in.shape[1] + 1):
            target = Stream(torch.ones(1, end, dtype=torch.bool))
            with torch.no_grad():
                stream = about.model(batch.source, source, batch.tgt_in[:, :end], target)
                logits = about.model.project(stream[:, -1])
            found += float(F.cross_entropy(logits, batch.tgt_out[end - 1 : end]))
            tokens += 1
    loss = inference.stepwise(about).values["eval"]["loss"]["stepwise"]
    assert loss == pytest.approx(found / tokens, rel=1e-5)


def test_differences_by_hand():
    whole = torch.tensor([[0.0, math.log(3)], [0.0, 0.0], [1.0, 0.0]])
    steps = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [1.0, 0.0]])
    targets = torch.tensor([0, 1, 0])
    found = differences(whole, steps, targets)
    assert found["tokens"] == 3
    assert found["changed"] == pytest.approx(1 / 3)
    assert found["difference"]["largest"] == pytest.approx(math.log(3))
    assert found["difference"]["mean"] == pytest.approx(math.log(3) / 3)
    gain = found["loss"]["whole"] - found["loss"]["stepwise"]
    assert gain == pytest.approx(math.log(3) / 3)
    assert not found["same"]
    assert differences(whole, whole, targets)["same"]
