"""What the questions find in models, predicted from the axes of each norm alone."""

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from normlab.distributed.process_group import Shard
from normlab.inspection.model import (
    batch_mate_sets,
    gradient_leak,
    injected_outlier,
    padding_shares,
    running_statistics,
)
from normlab.inspection.model.layer_gradients import gradients, training_batch
from normlab.inspection.questions import questions
from normlab.probes.gradients import by_stack
from tests.inspection.subjects import OVER_BATCH, OVER_TIME, examined, subject, trained

FEW = (0.0, 0.3, 0.8)
STACKS = ("encoder", "decoder")


def few(patch):
    """Let the questions use only a few sentences."""
    questions("claim")  # loads the ledger's checks, which read some of these numbers as they load
    patch.setattr(batch_mate_sets, "SETS", 3)
    patch.setattr(padding_shares, "SHARES", FEW)
    patch.setattr(padding_shares, "SENTENCES", 8)
    patch.setattr(running_statistics, "SENTENCES", 40)
    patch.setattr(running_statistics, "RECALIBRATION_BATCHES", 6)


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    few(monkeypatch)


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


# One norm per way to see other tokens, with and without statistics per position, both placements.
@pytest.fixture(
    scope="module", params=[("in", "pre"), ("bn_position", "pre"), ("bn", "post")], ids="-".join
)
def answered(request, tmp_path_factory):
    norm, placement = request.param
    with pytest.MonkeyPatch.context() as patch:
        few(patch)
        folder = tmp_path_factory.mktemp(norm)
        examination = trained(folder, f"norm={norm}", f"placement={placement}", "model.dropout=0")
        found = {each.name: examined(examination, each.ask) for each in questions("model")}
    return Answered(examination, norm, placement, found)


def test_a_norm_that_pools_over_batch_or_time_is_worth_a_look_or_broken(answered):
    leaky = "look" if answered.over_batch else "fine"
    verdicts = ("batch_mates", "leak", "stepwise", "padding")
    assert {name: answered.answers[name].verdict for name in verdicts} == {
        "batch_mates": leaky,
        "leak": "broken" if answered.over_time_in_eval else leaky,
        "stepwise": "broken" if answered.over_time_in_eval else "fine",
        "padding": "fine",
    }


def test_batch_mates_move_values_in_training_behind_the_first_norm_over_the_batch(answered):
    moved = answered.values("batch_mates")
    for what in ("values", "attention"):
        assert max(moved[what]["eval"].values()) < 1e-5
        for name, share in moved[what]["training"].items():
            before_any_norm = answered.placement == "post" and name.endswith(".0.self")
            assert (share > 1e-3) == (answered.over_batch and not before_any_norm)
    assert "not at all in eval" in answered.answers["batch_mates"].answer


@pytest.mark.parametrize("mode", ["training", "eval"])
def test_tokens_see_others_of_the_batch_and_later_ones_where_the_norm_pools_them(answered, mode):
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


def test_padding_moves_nothing(answered):
    padding = answered.values("padding")
    assert padding["shares"] == [*FEW]
    assert max(max(x) for by in padding["moved"].values() for x in by.values()) < 1e-5


def test_running_statistics_cost_something_where_there_are_any(answered):
    statistics = answered.values("statistics")
    losses = statistics["loss"]
    if answered.over_batch:
        assert statistics["gap"] == losses["running"] - losses["batch"]
        assert len(set(losses.values())) > 2
    else:
        assert statistics["gap"] == 0 and "running" not in losses


def test_steps_equal_a_whole_pass_unless_later_tokens_are_seen(answered):
    steps, same = answered.values("stepwise"), not answered.over_time_in_eval
    assert steps["eval"]["same"] == same and ("batch" in steps) == answered.over_batch
    assert (steps["eval"]["difference"]["largest"] < 1e-4) == same


def test_an_outlier_moves_others_by_statistics_of_the_batch_alone(answered):
    outlier = answered.values("outlier")["model"]
    for statistics, each in outlier.items():
        for stack, by in each["outlier_in"].items():
            assert by["moved"][stack]["own"] > 0
            assert (by["moved"][stack]["others"] > 0) == (statistics == "of the batch")
        # The encoder does not see the decoder; the decoder sees the encoder's output.
        assert each["outlier_in"]["decoder"]["moved"]["encoder"] == {"own": 0, "others": 0}
        assert each["outlier_in"]["encoder"]["moved"]["decoder"]["own"] > 0
    assert ("of the batch" in outlier) == answered.over_batch


def test_gradients_are_those_of_a_step_by_hand(answered):
    examination, values = answered.subject, answered.values("gradients")
    model = copy.deepcopy(examination.model).train()
    batch = next(examination.task.train_batches(Shard(0, 1), examination.seed))
    (examination.losses(batch, model)["loss"] / len(batch.tgt_out)).backward()
    by_name = {name: float(p.grad.norm()) for name, p in model.named_parameters()}
    assert values["norm"] == pytest.approx(math.hypot(*by_name.values()), rel=1e-4)
    last = by_name["decoder.layers.0.feed_forward.fc2.weight"]
    assert values["last_second_weight"] == pytest.approx(last, rel=1e-4)


def test_other_sentences_leak_through_the_encoder_and_a_norm_on_the_embedding(tmp_path):
    found = gradient_leak.leak(trained(tmp_path, "norm=bn", "norm@decoder_norm=ln")).values[
        "training"
    ]
    assert found["decoder"]["others"] > 1e-6 and found["decoder"]["later"] == 0
    found = gradient_leak.leak(trained(tmp_path, "norm=ln", "norm@embedding_norm=bn")).values
    assert found["training"]["decoder"]["later"] > 1e-6
    assert found["eval"]["decoder"]["later"] == 0


def test_padding_that_counts_moves_outputs_in_training_alone(tmp_path):
    about = trained(tmp_path, "norm=bn", "norm.padding=include")
    finding = examined(about, padding_shares.padding)
    moved = finding.values["moved"]
    for stack in STACKS:
        first, some, most = moved["training"][stack]
        assert first == 0 and most > some > 1e-3 and max(moved["eval"][stack]) < 1e-5
    assert "not at all" in finding.answer.partition("statistics")[2]
    assert finding.verdict == "look" and finding.value == max(
        x[-1] for x in moved["training"].values()
    )


def test_shares_of_padding_stop_where_positions_do(tmp_path):
    rows = ("norm=bn_position", "norm.num_positions=40")
    found = padding_shares.padding(subject(tmp_path, *rows)).values
    assert found["shares"][-1] < 0.8
    assert max(found["lengths"]) / (1 - found["shares"][-1]) <= 40


def test_a_norm_that_evaluates_by_the_batch_is_also_examined_with_running_statistics(tmp_path):
    by_batch = trained(tmp_path, "norm=bn", "norm.eval_stats=batch")
    found = examined(by_batch, running_statistics.statistics).values
    assert found == running_statistics.statistics(trained(tmp_path, "norm=bn")).values


def test_layer_norm_keeps_the_softmax_alive_where_no_norm_lets_it_saturate(tmp_path):
    alive, dead = (
        injected_outlier.outlier(trained(tmp_path, f"norm={norm}")) for norm in ("ln", "none")
    )
    assert alive.verdict == "fine" and dead.verdict == "look"
    kept, lost = (each.values["model"]["as evaluated"] for each in (alive, dead))
    assert kept["alive"] and not lost["alive"]
    slopes = [min(by["slope"] for by in each["outlier_in"].values()) for each in (kept, lost)]
    assert slopes[1] < slopes[0] / 3


def test_the_decoder_of_post_norm_grows_towards_the_top_and_that_of_pre_norm_does_not(tmp_path):
    deep = "model.encoder_layers=7", "model.decoder_layers=7"
    pre, post = (
        gradients(subject(tmp_path, "norm=ln", f"placement={place}", *deep))
        for place in ("pre", "post")
    )
    assert post.values["growth"]["decoder"] > 2 and pre.values["growth"]["decoder"] < 1
    assert post.values["last_second_weight"] > pre.values["last_second_weight"]
    assert len(by_stack(post.values["layers"])["encoder"]) == 7


def test_gradients_are_of_the_runs_first_batch_or_of_32_sentences(tmp_path):
    about = subject(tmp_path, "norm=ln", "seed=3")
    first = next(about.task.train_batches(Shard(0, 1), 3))
    assert torch.equal(training_batch(about).tgt_out, first.tgt_out)
    for sizes in (["batch_size=64"], ["batch_size=null", "max_tokens=3000"]):
        assert len(training_batch(subject(tmp_path, "norm=ln", *sizes)).source) == 32


@pytest.mark.parametrize(
    ("ask", "number"), [(gradient_leak.leak, 1), (batch_mate_sets.batch_mates, 2)]
)
def test_too_few_sentences_are_named(tmp_path, ask, number):
    about = subject(tmp_path, "norm=bn")

    class Few(type(about.task)):
        def __init__(self):
            pass

        def lengths(self, split):
            return about.task.lengths(split)[:number]

    assert ask(replace(about, task=Few())).why_not
