"""Answers about models, predicted only from the axes that each norm pools over."""

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from normlab.distributed.process_group import Shard
from normlab.inspection.model.batch_mates import batch_mates
from normlab.inspection.model.leak import leak
from normlab.inspection.questions import questions
from tests.inspection.tiny_models import (
    FEW_SHARES,
    OVER_BATCH,
    OVER_TIME,
    ask_about_few_sentences,
    examined,
    trained,
    untrained,
)

STACKS = ("encoder", "decoder")


@dataclass
class Answered:
    """A run with a norm, and the answers to the questions about its model."""

    subject: Any
    norm: str
    placement: str
    answers: dict

    def values(self, name):
        return self.answers[name].values

    @property
    def over_batch(self):
        return self.norm in OVER_BATCH

    @property
    def over_time_in_eval(self):
        """Whether tokens see later ones in evaluation, which uses running statistics."""
        return self.norm in OVER_TIME and not self.over_batch


# One norm for each way to see other tokens, with and without statistics per position.
@pytest.fixture(
    scope="module", params=[("in", "pre"), ("bn_position", "pre"), ("bn", "post")], ids="-".join
)
def answered(request, tmp_path_factory):
    norm, placement = request.param
    with pytest.MonkeyPatch.context() as patch:
        ask_about_few_sentences(patch)
        folder = tmp_path_factory.mktemp(norm)
        examination = trained(folder, f"norm={norm}", f"placement={placement}", "model.dropout=0")
        findings = {each.name: examined(examination, each.ask) for each in questions("model")}
    return Answered(examination, norm, placement, findings)


def test_a_norm_that_pools_over_batch_or_time_is_worth_a_look_or_broken(answered):
    leaky = "look" if answered.over_batch else "fine"
    verdicts = ("batch_mates", "leak", "stepwise", "padding")
    assert {name: answered.answers[name].verdict for name in verdicts} == {
        "batch_mates": leaky,
        "leak": "broken" if answered.over_time_in_eval else leaky,
        "stepwise": "broken" if answered.over_time_in_eval else "fine",
        "padding": "fine",
    }


def test_batch_mates_change_values_only_in_training_after_a_norm_over_the_batch(answered):
    moved = answered.values("batch_mates")
    for what in ("values", "attention"):
        assert max(moved[what]["eval"].values()) < 1e-5
        for name, share in moved[what]["training"].items():
            before_any_norm = answered.placement == "post" and name.endswith(".0.self")
            assert (share > 1e-3) == (answered.over_batch and not before_any_norm)
    assert "not at all in eval" in answered.answers["batch_mates"].answer


@pytest.mark.parametrize("mode", ["training", "eval"])
def test_tokens_see_other_rows_and_later_tokens_only_if_the_norm_pools_over_them(answered, mode):
    leaks = answered.values("leak")[mode]
    over_batch = answered.over_batch and mode == "training"
    over_time = answered.norm in OVER_TIME if mode == "training" else answered.over_time_in_eval
    for stack in STACKS:
        assert leaks[stack]["own"] > 0
        assert leaks[stack]["others"] > 1e-6 if over_batch else leaks[stack]["others"] == 0
    assert leaks["encoder"]["later"] > 1e-6  # it attends both ways
    assert leaks["decoder"]["later"] > 1e-6 if over_time else leaks["decoder"]["later"] == 0


def test_the_answer_says_whether_a_model_leaks_in_evaluation(answered):
    ends = answered.answers["leak"].answer.endswith("in eval nothing leaks")
    assert ends != answered.over_time_in_eval


def test_excluded_padding_changes_nothing(answered):
    padding = answered.values("padding")
    assert padding["shares"] == [*FEW_SHARES]
    assert max(max(x) for by in padding["moved"].values() for x in by.values()) < 1e-5


def test_only_norms_with_running_statistics_have_a_gap(answered):
    statistics = answered.values("statistics")
    losses = statistics["loss"]
    if answered.over_batch:
        assert statistics["gap"] == losses["running"] - losses["batch"]
        assert len(set(losses.values())) > 2
    else:
        assert statistics["gap"] == 0 and losses["running"] == losses["batch"]


def test_stepwise_decoding_equals_a_full_pass_unless_the_norm_sees_later_tokens(answered):
    steps, same = answered.values("stepwise"), not answered.over_time_in_eval
    assert steps["eval"]["same"] == same and ("batch" in steps) == answered.over_batch
    assert (steps["eval"]["difference"]["largest"] < 1e-4) == same


def test_an_outlier_changes_other_rows_only_through_batch_statistics(answered):
    outlier = answered.values("outlier")["model"]
    for statistics, each in outlier.items():
        for stack, by in each["outlier_in"].items():
            assert by["moved"][stack]["own"] > 0
            assert (by["moved"][stack]["others"] > 0) == (statistics == "of the batch")
        # The encoder does not see the decoder; the decoder sees the encoder's output.
        assert each["outlier_in"]["decoder"]["moved"]["encoder"] == {"own": 0, "others": 0}
        assert each["outlier_in"]["encoder"]["moved"]["decoder"]["own"] > 0
    assert ("of the batch" in outlier) == answered.over_batch


def test_gradients_match_a_training_step_by_hand(answered):
    examination, values = answered.subject, answered.values("gradients")
    model = copy.deepcopy(examination.model).train()
    batch = next(examination.task.train_batches(Shard(0, 1), examination.seed))
    (examination.losses(batch, model)["loss"] / len(batch.tgt_out)).backward()
    by_name = {name: float(p.grad.norm()) for name, p in model.named_parameters()}
    assert values["norm"] == pytest.approx(math.hypot(*by_name.values()), rel=1e-4)
    last = by_name["decoder.layers.0.feed_forward.fc2.weight"]
    assert values["last_second_weight"] == pytest.approx(last, rel=1e-4)


@pytest.mark.parametrize(("ask", "number"), [(leak, 1), (batch_mates, 2)])
def test_questions_with_too_few_sentences_do_not_apply(tmp_path, ask, number):
    about = untrained(tmp_path, "norm=bn")

    class Few(type(about.task)):
        def __init__(self):
            pass

        def lengths(self, split):
            return about.task.lengths(split)[:number]

    assert ask(replace(about, task=Few())).why_not
