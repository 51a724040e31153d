"""Noise on the input: where it falls, how large it is, that it leaves nothing behind."""

import pytest
import torch
from torch import nn

from normlab.config.compose import compose, to_dict
from normlab.models.layers import Embedding, noisy
from normlab.norms.ranks import Shard
from normlab.tasks.base import Condition
from normlab.train.build import build_evaluator, build_model, build_task
from normlab.train.evaluate import Weights
from normlab.train.runtime import Runtime
from tests.models.small import logits, sentences, seq2seq

DIGITS = ("task=digits", "model.width=4", "task.test_batch_sizes=[]", "task.test_eval_stats=[]")


class Echo(nn.Module):
    """What a model without token embeddings is given."""

    def forward(self, values, other):
        return values, other


def built(*overrides):
    config = to_dict(compose([*overrides, "observe.threads=1", "precision=fp64"]))
    task = build_task(config)
    return config, task, build_model(config, task).to(torch.float64).eval()


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
    model = nn.Sequential(Embedding(50, 64, padding_idx=3, unit=unit))
    model[0].initialize(torch.Generator().manual_seed(0))
    ids = torch.randint(4, 50, (200, 20), generator=torch.Generator().manual_seed(1))
    ids[:, 15:] = 3
    plain = model(ids)
    with noisy(model, 0.5):
        added = model(ids) - plain
    assert torch.equal(added[:, 15:], torch.zeros(200, 5, 64))
    spread = model[0].table[torch.arange(50) != 3].std()
    assert float((added[:, :15].std() / spread).detach()) == pytest.approx(0.5, rel=0.02)
    assert torch.equal(model(ids), plain)


def test_a_test_is_repeated_under_noise(tmp_path):
    config, task, model = built(*DIGITS, "observe.test_noise=[0.5,50]", "norm=bn")
    evaluator = build_evaluator(config, task, Runtime(torch.device("cpu"), "fp64", Shard(0, 1)))
    scores = evaluator.test(model, Weights("last", 1, model.state_dict()), outputs=tmp_path)
    plain = evaluator.scores(model, "test")
    assert scores["test/loss"] == plain["test/loss"]
    found = [scores[f"test/{name}loss"].value for name in ("", "noise_0.5/", "noise_50/")]
    assert len(set(found)) == 3


def test_statistics_are_estimated_anew_without_the_noise():
    _, task, model = built(*DIGITS, "norm=bn", "norm.eval_stats=recalibrated")
    config = to_dict(compose([*DIGITS, "norm=bn", "observe.test_noise=[]"]))
    evaluator = build_evaluator(config, task, Runtime(torch.device("cpu"), "fp64", Shard(0, 1)))
    inputs = []
    model.stem.register_forward_pre_hook(lambda _, given: inputs.append(float(given[0].std())))
    evaluator.scores(model, "test", condition=Condition(noise=50.0))
    assert max(inputs[:-1]) < 3
    assert inputs[-1] > 30


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
