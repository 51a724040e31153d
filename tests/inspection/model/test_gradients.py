"""Gradients by layer, on the run's first batch."""

import torch

from normlab.distributed.process_group import Shard
from normlab.inspection.model.gradients import first_update, gradients, training_batch
from normlab.probes.gradients import by_stack
from tests.inspection.tiny_models import untrained


def test_gradients_grow_towards_the_top_of_the_decoder_with_post_norm_but_not_pre_norm(tmp_path):
    deep = "model.encoder_layers=7", "model.decoder_layers=7"
    pre, post = (
        gradients(untrained(tmp_path, "norm=ln", f"placement={place}", *deep))
        for place in ("pre", "post")
    )
    assert post.values["growth"]["decoder"] > 2 and pre.values["growth"]["decoder"] < 1
    assert post.values["last_second_weight"] > pre.values["last_second_weight"]
    assert len(by_stack(post.values["layers"])["encoder"]) == 7


def test_gradients_use_the_first_batch_of_the_run_or_32_sentences(tmp_path):
    about = untrained(tmp_path, "norm=ln", "seed=3")
    first = next(about.task.train_batches(Shard(0, 1), 3))
    assert torch.equal(training_batch(about).tgt_out, first.tgt_out)
    for sizes in (["batch_size=64"], ["batch_size=null", "max_tokens=3000"]):
        assert len(training_batch(untrained(tmp_path, "norm=ln", *sizes)).source) == 32


def test_the_first_update_is_made_on_a_copy_and_changes_the_output_of_every_layer(tmp_path):
    built = untrained(tmp_path, "norm=bn")
    before = {name: x.clone() for name, x in built.model.state_dict().items()}
    changes = first_update(built)
    assert changes.keys() == {"encoder.0", "decoder.0"} and min(changes.values()) > 0
    assert all(torch.equal(x, before[name]) for name, x in built.model.state_dict().items())
    assert all(parameter.grad is None for parameter in built.model.parameters())
    assert first_update(built) == changes
