"""Noise on the input: where it falls, how large it is, that it leaves nothing behind."""

import pytest
import torch
from torch import nn

from normlab.config.compose import compose, to_dict
from normlab.distributed.process_group import Shard
from normlab.models.noise import noisy
from normlab.tasks.conditions import Condition
from normlab.train.build import build_model, build_task
from normlab.train.evaluate import Evaluator, Weights
from normlab.train.runtime import Runtime
from tests.models.small import logits, sentences, seq2seq

DIGITS = ("task=digits", "model.width=4", "task.test_batch_sizes=[]", "task.test_eval_stats=[]")
ALONE = Runtime(torch.device("cpu"), "fp64", Shard(0, 1))


class Echo(nn.Module):
    """What a model without token embeddings is given."""

    def forward(self, values, other):
        return values, other


def test_noise_on_an_input_has_the_deviation_asked_for_and_begins_anew():
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
def test_noise_on_tokens_is_in_deviations_of_their_table_and_leaves_padding(unit):
    embedding = (model := seq2seq(dim=64, vocab=50, fixnorm=unit)).encoder.embedding
    ids, tokens = sentences([15] * 200, vocab=50, width=20)
    plain = embedding(ids, tokens)
    with noisy(model, 0.5):
        added = (embedding(ids, tokens) - plain).detach() / embedding.scale
    assert not added[:, 15:].any()
    spread = embedding.tokens.table[1:].std().item()
    assert added[:, :15].std().item() / spread == pytest.approx(0.5, rel=0.02)
    assert torch.equal(embedding(ids, tokens), plain)


def test_a_test_is_repeated_under_noise_and_statistics_are_estimated_without_it(tmp_path):
    config = to_dict(compose([*DIGITS, "norm=bn", "norm.eval_stats=recalibrated"]))
    task = build_task(config)
    model = build_model(config, task).double()
    evaluator = Evaluator(task, ALONE, recalibration_batches=3, noise=[0.5, 50.0])
    inputs = []
    model.stem.register_forward_pre_hook(lambda _, given: inputs.append(float(given[0].std())))
    scores = evaluator.test(model, Weights("last", 1, model.state_dict()), outputs=tmp_path)
    found = [scores[f"test/{name}loss"].value for name in ("", "noise_0.5/", "noise_50/")]
    assert len(set(found)) == 3
    inputs.clear()
    evaluator.scores(model, "test", condition=Condition(noise=50.0))
    assert max(inputs[:3]) < 3 and min(inputs[3:]) > 30


def test_a_translation_is_disturbed_at_its_source_alone():
    model = seq2seq("ln", "pre").eval()  # whose stacks share a table
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
