"""Noise on inputs and weights: where it is added, how large it is, and that it is removed."""

import pytest
import torch
from torch import nn

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.distributed.process_group import Shard
from normlab.errors import UserError
from normlab.models.noise import noisy, noisy_weights
from normlab.tasks.conditions import Condition
from normlab.training.build import build_evaluator, build_model, build_task
from normlab.training.evaluate import Evaluator, Weights
from normlab.training.runtime import Runtime
from tests.models.small import logits, sentences, seq2seq

DIGITS = ("task=digits", "model.width=4", "task.test_batch_sizes=[]", "task.test_eval_stats=[]")
ALONE = Runtime(torch.device("cpu"), "fp64", Shard(0, 1))


class Echo(nn.Module):
    """A model without token embeddings that returns its input."""

    def forward(self, values, other):
        return values, other


def test_input_noise_has_the_requested_standard_deviation_and_is_reproducible():
    values, found = torch.zeros(400, 100), []
    echo = Echo()
    for _ in range(2):
        with noisy(echo, 0.4):
            disturbed, other = echo(values, values)
            found.append(disturbed)
            again, _ = echo(values, values)
        assert torch.equal(other, values)
        assert not torch.equal(again, disturbed)
    assert torch.equal(*found)
    assert float(found[0].std()) == pytest.approx(0.4, rel=0.02)
    assert torch.equal(echo(values, values)[0], values)


@pytest.mark.parametrize("unit", [False, True])
def test_token_noise_is_relative_to_the_embedding_tables_deviation_and_skips_padding(unit):
    embedding = (model := seq2seq(dim=64, vocab=50, fixnorm=unit)).encoder.embedding
    ids, tokens = sentences([15] * 200, vocab=50, width=20)
    plain = embedding(ids, tokens)
    with noisy(model, 0.5):
        added = (embedding(ids, tokens) - plain).detach() / embedding.scale
    assert not added[:, 15:].any()
    spread = embedding.tokens.table[1:].std().item()
    assert added[:, :15].std().item() / spread == pytest.approx(0.5, rel=0.02)
    assert torch.equal(embedding(ids, tokens), plain)


def test_a_test_is_repeated_with_noise_but_recalibration_has_none(tmp_path):
    config = to_dict(compose([*DIGITS, "norm=bn", "norm.eval_stats=recalibrated"]))
    task = build_task(config)
    model = build_model(config, task).double()
    noises = {"noise": [0.5, 50.0]}
    evaluator = Evaluator(task, ALONE, recalibration_batches=3, disturbances=noises)
    inputs = []
    model.stem.register_forward_pre_hook(lambda _, given: inputs.append(float(given[0].std())))
    scores = evaluator.test(model, Weights("last", 1, model.state_dict()), outputs=tmp_path)
    found = [scores[f"test/{name}loss"].value for name in ("", "noise_0.5/", "noise_50/")]
    assert len(set(found)) == 3
    inputs.clear()
    evaluator.scores(model, "test", condition=Condition(noise=50.0))
    assert max(inputs[:3]) < 3 and min(inputs[3:]) > 30


def test_in_translation_noise_is_added_only_to_the_source():
    model = seq2seq("ln", "pre").eval()  # its stacks share an embedding table
    source, target = sentences([4, 5], seed=1)[0], sentences([3, 6], seed=2)[0]
    seen = {}
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        stack.embedding.register_forward_hook(
            lambda _, given, x, name=name: seen.setdefault(name, []).append(x)
        )
    logits(model, source, target)
    with noisy(model, 0.5):
        logits(model, source, target)
    assert not torch.equal(*seen["encoder"])
    assert torch.equal(*seen["decoder"])


def test_weight_noise_is_relative_to_each_matrix_and_is_removed_afterwards():
    with_norms, without = seq2seq("ln", "pre", dim=32), seq2seq("none", "pre", dim=32)
    moves = []
    for model in (with_norms, without):
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        with noisy_weights(model, 0.1):
            moved = {name: p.detach() - before[name] for name, p in model.named_parameters()}
        for name, move in moved.items():
            if move.dim() > 1:
                share = move.square().mean().sqrt() / before[name].square().mean().sqrt()
                assert float(share) == pytest.approx(0.1, rel=0.15), name
            else:
                assert not move.any(), name
        assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
        moves.append([move for move in moved.values() if move.dim() > 1])
    torch.testing.assert_close(moves[0], moves[1])


def test_brightness_0_5_halves_pixels_before_they_are_standardized(tmp_path):
    config = to_dict(compose([*DIGITS, "norm=ln", "observe.test_brightness=[0.5]"]))
    task = build_task(config)
    model = build_model(config, task).double()
    evaluator = build_evaluator(config, task, ALONE)
    inputs = []
    model.stem.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    scores = evaluator.test(model, Weights("last", 1, model.state_dict()), outputs=tmp_path)
    assert {"test/accuracy", "test/brightness_0.5/accuracy"} <= set(scores)
    plain, dim = inputs[0], inputs[len(inputs) // 2]
    mean, deviation = (table[:, None, None] for table in task._standard)
    torch.testing.assert_close(dim * deviation + mean, (plain * deviation + mean) / 2)


def test_brightness_is_refused_for_a_task_without_images():
    config = to_dict(compose(["task=toy", "observe.test_brightness=[0.5]"]))
    with pytest.raises(UserError, match=r"test_brightness=\[0.5\].*not images"):
        build_evaluator(config, build_task(config), ALONE)
