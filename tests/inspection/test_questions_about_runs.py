"""What the questions find in models, from the axes of each norm alone."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from normlab.distributed.process_group import Shard
from normlab.inspection import inference, leaks, outlier, padding
from normlab.inspection.depth import by_stack, gradients, training_batch
from normlab.inspection.question import questions
from tests.inspection.subjects import OVER_BATCH, OVER_TIME, examined, subject, trained

FEW = (0.0, 0.3, 0.8)
STACKS = ("encoder", "decoder")


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    questions("claim")  # loads the ledger's checks, which read some of these numbers as they load
    monkeypatch.setattr(leaks, "SETS", 3)
    monkeypatch.setattr(padding, "SHARES", FEW)
    monkeypatch.setattr(padding, "SENTENCES", 8)
    monkeypatch.setattr(inference, "SENTENCES", 40)
    monkeypatch.setattr(inference, "RECALIBRATION_BATCHES", 6)


# A norm of each way to see other tokens, with rows per position and without, in both placements.
@pytest.mark.parametrize(
    ("norm", "placement"), [("in", "pre"), ("bn_position", "pre"), ("bn", "post")]
)
def test_a_norm_shows_along_its_axes_and_no_further(tmp_path, norm, placement):
    about = trained(tmp_path, f"norm={norm}", f"placement={placement}", "model.dropout=0")
    found = {each.name: examined(about, each.ask) for each in questions("model")}
    values = {name: each.values for name, each in found.items()}
    batch, time = norm in OVER_BATCH, norm in OVER_TIME
    time_in_eval = time and not batch

    verdicts = {
        name: found[name].verdict for name in ("batch_mates", "leak", "stepwise", "padding")
    }
    leaky = "look" if batch else "fine"
    in_eval = "broken" if time_in_eval else leaky
    assert verdicts == {
        "batch_mates": leaky,
        "leak": in_eval,
        "stepwise": "broken" if time_in_eval else "fine",
        "padding": "fine",
    }
    moved = values["batch_mates"]
    for what in ("values", "attention"):
        assert max(moved[what]["eval"].values()) < 1e-5
        for name, share in moved[what]["training"].items():
            before_any_norm = placement == "post" and name.endswith(".0.self")
            assert (share > 1e-3) == (batch and not before_any_norm)
    assert "not at all in eval" in found["batch_mates"].answer

    for mode, pools, over_time in (("training", batch, time), ("eval", False, time_in_eval)):
        leaks = values["leak"][mode]
        for stack in STACKS:
            assert leaks[stack]["own"] > 0
            assert leaks[stack]["others"] > 1e-6 if pools else leaks[stack]["others"] == 0
        assert leaks["encoder"]["later"] > 1e-6  # it attends both ways
        assert leaks["decoder"]["later"] > 1e-6 if over_time else leaks["decoder"]["later"] == 0
    assert found["leak"].answer.endswith("in eval nothing leaks") != time_in_eval

    assert values["padding"]["shares"] == [*FEW]
    assert max(max(x) for by in values["padding"]["moved"].values() for x in by.values()) < 1e-5

    losses = values["statistics"]["loss"]
    if batch:
        assert values["statistics"]["gap"] == losses["running"] - losses["batch"]
        assert len(set(losses.values())) > 2
    else:
        assert values["statistics"]["gap"] == 0 and "running" not in losses

    steps = values["stepwise"]
    assert steps["eval"]["same"] == (not time_in_eval) and ("batch" in steps) == batch
    assert (steps["eval"]["difference"]["largest"] < 1e-4) == (not time_in_eval)

    for statistics, each in values["outlier"]["model"].items():
        for stack, by in each["outlier_in"].items():
            assert by["moved"][stack]["own"] > 0
            assert (by["moved"][stack]["others"] > 0) == (statistics == "of the batch")
        # The encoder does not see the decoder; the decoder sees what the encoder made of it.
        assert each["outlier_in"]["decoder"]["moved"]["encoder"] == {"own": 0, "others": 0}
        assert each["outlier_in"]["encoder"]["moved"]["decoder"]["own"] > 0
    assert ("of the batch" in values["outlier"]["model"]) == batch

    model = copy.deepcopy(about.model).train()  # a step of training by hand
    batch = next(about.task.train_batches(Shard(0, 1), about.seed))
    (about.losses(batch, model)["loss"] / len(batch.tgt_out)).backward()
    by_name = {name: float(p.grad.norm()) for name, p in model.named_parameters()}
    assert values["gradients"]["norm"] == pytest.approx(math.hypot(*by_name.values()), rel=1e-4)
    last = by_name["decoder.layers.0.feed_forward.fc2.weight"]
    assert values["gradients"]["last_second_weight"] == pytest.approx(last, rel=1e-4)


def test_other_sentences_leak_through_the_encoder_and_a_norm_on_the_embedding(tmp_path):
    found = leaks.leak(trained(tmp_path, "norm=bn", "norm@decoder_norm=ln")).values["training"]
    assert found["decoder"]["others"] > 1e-6 and found["decoder"]["later"] == 0
    found = leaks.leak(trained(tmp_path, "norm=ln", "norm@embedding_norm=bn")).values
    assert found["training"]["decoder"]["later"] > 1e-6
    assert found["eval"]["decoder"]["later"] == 0


def test_padding_that_counts_moves_outputs_in_training_alone(tmp_path):
    about = trained(tmp_path, "norm=bn", "norm.padding=include")
    finding = examined(about, padding.padding)
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
    found = padding.padding(subject(tmp_path, *rows)).values
    assert found["shares"][-1] < 0.8
    assert max(found["lengths"]) / (1 - found["shares"][-1]) <= 40


def test_a_norm_that_evaluates_by_the_batch_is_also_examined_with_running_statistics(tmp_path):
    by_batch = trained(tmp_path, "norm=bn", "norm.eval_stats=batch")
    found = examined(by_batch, inference.statistics).values
    assert found == inference.statistics(trained(tmp_path, "norm=bn")).values


def test_layer_norm_keeps_the_softmax_alive_where_no_norm_lets_it_saturate(tmp_path):
    alive, dead = (outlier.outlier(trained(tmp_path, f"norm={norm}")) for norm in ("ln", "none"))
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


@pytest.mark.parametrize(("ask", "number"), [(leaks.leak, 1), (leaks.batch_mates, 2)])
def test_too_few_sentences_are_named(tmp_path, ask, number):
    about = subject(tmp_path, "norm=bn")

    class Few(type(about.task)):
        def __init__(self):
            pass

        def lengths(self, split):
            return about.task.lengths(split)[:number]

    assert ask(replace(about, task=Few())).why_not
