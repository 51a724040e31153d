"""Gradient norms by layer against autograd's own, and how they go with depth."""

import copy
import math

import pytest
import torch

from normlab.distributed import Shard
from normlab.inspect import depth
from normlab.inspect.depth import by_stack, ratio, second_weights, training_batch
from tests.inspect.subjects import EVERY_KIND, examined, subject, trained


@EVERY_KIND
def test_the_gradient_is_that_of_the_first_training_step_without_dropout(tmp_path, norm, placement):
    overrides = f"norm={norm}", f"placement={placement}", "model.dropout=0"
    about = trained(tmp_path, *overrides, steps=3)
    finding = examined(about, depth.gradients)
    # By a copy that trains for a step, and by hand over its parameters.
    model = copy.deepcopy(about.model).train()
    batch = next(about.task.train_batches(Shard(0, 1), about.seed))
    loss = about.task.losses(model, batch)["loss"] / len(batch.tgt_out)
    loss.backward()
    found = finding.values
    assert found["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    by_name = {name: float(p.grad.norm()) for name, p in model.named_parameters()}
    assert found["norm"] == pytest.approx(math.hypot(*by_name.values()), rel=1e-4)
    for stack in ("encoder", "decoder"):
        parts = [v for name, v in by_name.items() if name.startswith(f"{stack}.layers.0.")]
        assert found["layers"][f"{stack}.0"] == pytest.approx(math.hypot(*parts), rel=1e-4)
    last = by_name["decoder.layers.0.feed_forward.fc2.weight"]
    assert found["last_second_weight"] == pytest.approx(last, rel=1e-4)
    assert math.hypot(*found["kinds"].values()) == pytest.approx(found["norm"])


def test_dropout_is_off(tmp_path):
    without = subject(tmp_path, "norm=ln", "model.dropout=0")
    with_dropout = subject(tmp_path, "norm=ln", "model.dropout=0.5")
    assert depth.gradients(without) == depth.gradients(with_dropout)


@pytest.mark.parametrize("sizes", [["batch_size=64"], ["batch_size=null", "max_tokens=3000"]])
def test_a_large_batch_is_cut_to_32_sentences(tmp_path, sizes):
    assert len(training_batch(subject(tmp_path, "norm=ln", *sizes)).source) == 32


@pytest.mark.parametrize("batching", ["bucket", "random"])
def test_a_small_batch_is_the_runs_first(tmp_path, batching):
    about = subject(tmp_path, "norm=ln", f"batching={batching}", "seed=3")
    first = next(about.task.train_batches(Shard(0, 1), 3))
    assert torch.equal(training_batch(about).source, first.source)
    assert torch.equal(training_batch(about).tgt_out, first.tgt_out)


def test_the_decoder_of_post_norm_grows_towards_the_top_and_that_of_pre_norm_does_not(tmp_path):
    deep = "model.encoder_layers=8", "model.decoder_layers=8"
    pre, post = (
        depth.gradients(subject(tmp_path, "norm=ln", f"placement={placement}", *deep)).values
        for placement in ("pre", "post")
    )
    assert post["growth"]["decoder"] > 2
    assert pre["growth"]["decoder"] < 1
    for stack in ("encoder", "decoder"):
        names = [f"{stack}.{index}" for index in range(8)]
        expected = pre["layers"][names[-1]] / pre["layers"][names[0]]
        assert pre["growth"][stack] == pytest.approx(expected)
    assert post["last_second_weight"] > pre["last_second_weight"]
    assert post["last_second_weight"] == post["second_weights"]["decoder.7"]


def test_of_a_deep_stack_the_table_shows_a_few_layers_and_the_figures_all(tmp_path):
    deep = "model.encoder_layers=9", "model.decoder_layers=1"
    finding = depth.gradients(subject(tmp_path, "norm=bn", "placement=post", *deep))
    shown = [
        name for name, _ in finding.table.rows if name.startswith("encoder.") and name[-1].isdigit()
    ]
    assert shown == [f"encoder.{index}" for index in (0, 2, 4, 6, 8)]
    assert set(by_stack(list(finding.values["layers"]))["encoder"]) == {
        f"encoder.{index}" for index in range(9)
    }


def test_layers_are_gathered_by_stack():
    names = ["encoder.embedding", "encoder.0", "encoder.1", "encoder.final", "decoder.0", "output"]
    assert by_stack(names) == {"encoder": ["encoder.0", "encoder.1"], "decoder": ["decoder.0"]}


def test_growth_is_the_last_over_the_first():
    norms = {"a": 2.0, "b": 100.0, "c": 3.0, "zero": 0.0}
    assert ratio(norms, ["a", "b", "c"]) == 1.5
    assert ratio(norms, ["a"]) == 1
    assert ratio(norms, ["zero", "a"]) == math.inf
    assert math.isnan(ratio(norms, ["zero"]))


def test_second_weights_are_those_of_the_feed_forward_layers(tmp_path):
    model = copy.deepcopy(subject(tmp_path, "norm=ln").model)
    assert second_weights(model) == {}
    weight = model.encoder.layers[0].feed_forward.fc2.weight
    weight.grad = torch.zeros_like(weight)
    weight.grad[0, :2] = torch.tensor([3.0, 4.0])
    model.encoder.layers[0].feed_forward.fc1.weight.grad = torch.ones(32, 16)
    assert second_weights(model) == {"encoder.0": pytest.approx(5)}
