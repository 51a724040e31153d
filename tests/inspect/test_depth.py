"""Gradient norms by layer against autograd's own, and how they go with depth."""

import copy
import math

import pytest
import torch

from normlab.inspect import depth
from normlab.inspect.depth import by_stack, training_batch
from normlab.norms.ranks import Shard
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


@pytest.mark.parametrize("sizes", [["batch_size=64"], ["batch_size=null", "max_tokens=3000"]])
def test_a_large_batch_is_cut_to_32_sentences(tmp_path, sizes):
    assert len(training_batch(subject(tmp_path, "norm=ln", *sizes)).source) == 32


def test_a_small_batch_is_the_runs_first(tmp_path):
    about = subject(tmp_path, "norm=ln", "seed=3")
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
