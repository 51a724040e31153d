"""Gradients by layer, on the run's first batch."""

import torch

from normlab.distributed.process_group import Shard
from normlab.inspection.model.layer_gradients import gradients, training_batch
from normlab.probes.gradients import by_stack
from tests.inspection.tiny_models import untrained


def test_the_decoder_of_post_norm_grows_towards_the_top_and_that_of_pre_norm_does_not(tmp_path):
    deep = "model.encoder_layers=7", "model.decoder_layers=7"
    pre, post = (
        gradients(untrained(tmp_path, "norm=ln", f"placement={place}", *deep))
        for place in ("pre", "post")
    )
    assert post.values["growth"]["decoder"] > 2 and pre.values["growth"]["decoder"] < 1
    assert post.values["last_second_weight"] > pre.values["last_second_weight"]
    assert len(by_stack(post.values["layers"])["encoder"]) == 7


def test_gradients_are_of_the_runs_first_batch_or_of_32_sentences(tmp_path):
    about = untrained(tmp_path, "norm=ln", "seed=3")
    first = next(about.task.train_batches(Shard(0, 1), 3))
    assert torch.equal(training_batch(about).tgt_out, first.tgt_out)
    for sizes in (["batch_size=64"], ["batch_size=null", "max_tokens=3000"]):
        assert len(training_batch(untrained(tmp_path, "norm=ln", *sizes)).source) == 32
