"""Token by token against whole sentences, worked out by hand and by the model's own forward."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from normlab.inspect import stepwise
from normlab.inspect.stepwise import differences, log_probabilities
from normlab.norms.base import Stream, normalized_by
from tests.inspect.subjects import (
    EVERY_KIND,
    OVER_BATCH,
    OVER_TIME,
    examined,
    subject,
    trained,
)


@EVERY_KIND
def test_in_eval_only_norms_over_time_differ_token_by_token(tmp_path, norm, placement):
    about = trained(tmp_path, f"norm={norm}", f"placement={placement}")
    finding = examined(about, stepwise.stepwise)
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


def test_batch_statistics_of_one_sentence_see_its_future(tmp_path):
    finding = stepwise.stepwise(trained(tmp_path, "norm=bn"))
    by_batch = finding.values["batch"]
    assert not by_batch["same"]
    assert by_batch["difference"]["mean"] > 1e-2
    assert by_batch["loss"]["whole"] != pytest.approx(finding.values["together"], abs=1e-3)
    assert [row[0] for row in finding.table.rows] == ["as evaluated", "of the sentence", "of all 7"]


def by_hand(about, batch):
    """Return the summed negative log-likelihood of a batch by the model's own forward."""
    with torch.no_grad():
        stream = about.model(
            batch.source, Stream(batch.source_valid), batch.tgt_in, Stream(batch.tgt_valid)
        )
        logits = about.model.project(stream)[batch.tgt_valid]
    return F.cross_entropy(logits, batch.tgt_out, reduction="sum")


def test_the_losses_on_the_whole_are_the_models_own(tmp_path):
    about = trained(tmp_path, "norm=bn")
    figures = stepwise.stepwise(about).values
    batches = [about.batch("valid", [index]) for index in range(7)]
    tokens = sum(batch.tokens for batch in batches)
    assert figures["eval"]["tokens"] == tokens
    expected = float(sum(by_hand(about, batch) for batch in batches)) / tokens
    assert figures["eval"]["loss"]["whole"] == pytest.approx(expected, rel=1e-5)
    with normalized_by(about.model, "batch"):
        alone = float(sum(by_hand(about, batch) for batch in batches)) / tokens
        together = float(by_hand(about, about.batch("valid", range(7)))) / tokens
    assert figures["batch"]["loss"]["whole"] == pytest.approx(alone, rel=1e-5)
    assert figures["together"] == pytest.approx(together, rel=1e-5)


def test_the_loss_step_by_step_is_that_of_each_prefix_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(stepwise, "SENTENCES", 2)
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
    loss = stepwise.stepwise(about).values["eval"]["loss"]["stepwise"]
    assert loss == pytest.approx(found / tokens, rel=1e-5)


def test_log_probabilities_are_of_the_targets():
    logits = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])
    found = log_probabilities(logits, torch.tensor([1, 0]))
    torch.testing.assert_close(found, torch.tensor([0.75, 0.5]).log())


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


class Mute:
    """A task that does not generate."""

    def __init__(self, task):
        self.lengths, self.batch = task.lengths, task.batch

    def stepwise(self, model, batch):
        return None


def test_a_task_without_text_to_generate_has_no_steps(tmp_path):
    about = subject(tmp_path, "norm=bn")
    object.__setattr__(mute := replace(about), "task", Mute(about.task))
    finding = stepwise.stepwise(mute)
    assert finding.why_not == "the task does not generate text"
    assert not finding.values
