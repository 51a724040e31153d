"""A model at initialization, with its task."""

import torch

from tests.inspection.tiny_models import untrained


def test_a_model_at_initialization_is_in_eval_and_belongs_to_no_run(tmp_path):
    built = untrained(tmp_path, "norm=bn", "seed=3")
    assert not built.model.training and (built.step, built.run_id, built.seed) == (0, None, 3)
    assert built.keeps_statistics and not untrained(tmp_path, "norm=ln").keeps_statistics
    assert not untrained(tmp_path, "norm=bn", "norm.eval_stats=batch").keeps_statistics


def test_each_question_draws_its_own_random_numbers(tmp_path):
    built = untrained(tmp_path, "norm=ln")
    first, again, other = (built.generator(name).random() for name in ("leak", "leak", "padding"))
    assert first == again != other


def test_a_batch_has_at_least_the_requested_share_of_padding(tmp_path):
    built = untrained(tmp_path, "norm=ln")
    plain, padded = (built.batch("train", range(4), padding=share) for share in (0.0, 0.8))
    assert padded.source.shape[1] > plain.source.shape[1]
    losses = [built.losses(batch)["loss"] for batch in (plain, padded)]
    torch.testing.assert_close(*losses)
