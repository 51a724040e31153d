"""Whose company a sentence feels: none by itself, others through the batch's statistics."""

import math

import pytest
import torch

from normlab.inspect import batch_mates
from normlab.inspect.batch_mates import (
    Look,
    attention_weights,
    last_values,
    stack_of,
    total_variation,
)
from normlab.inspect.model import by_how_much, deviation, movement, percent
from normlab.models.attention import AttentionCore
from normlab.norms.base import Stream, normalized_by
from normlab.probes.sites import sites
from tests.inspect.subjects import EVERY_KIND, OVER_BATCH, examined, subject, trained

ATTENTIONS = ["encoder.0.self", "decoder.0.self", "decoder.0.cross"]


@EVERY_KIND
def test_batch_mates_count_in_training_where_the_batch_is_pooled(
    tmp_path, monkeypatch, norm, placement
):
    monkeypatch.setattr(batch_mates, "SETS", 3)
    finding = examined(
        trained(tmp_path, f"norm={norm}", f"placement={placement}"), batch_mates.batch_mates
    )
    figures = finding.values
    pooled = norm in OVER_BATCH
    for what in ("values", "attention"):
        assert max(figures[what]["eval"].values()) < 1e-5
        for name, share in figures[what]["training"].items():
            before_any_norm = placement == "post" and name.endswith(".0.self")
            assert (share > 1e-3) == (pooled and not before_any_norm)
            assert share > 1e-3 or share < 1e-5
    assert list(figures["values"]["training"]) == ["encoder", "decoder"]
    assert sorted(figures["attention"]["training"]) == sorted(ATTENTIONS)
    assert figures["mates"] == 31
    assert finding.answer.startswith("in training its values change by ") == pooled
    assert "in eval its values change not at all" in finding.answer
    assert ("(attention by " in finding.answer) == pooled


def test_sets_agree_with_a_computation_by_hand(tmp_path, monkeypatch):
    assert batch_mates.SETS == 50
    monkeypatch.setattr(batch_mates, "SETS", 10)
    about = trained(tmp_path, "norm=bn")
    figures = batch_mates.batch_mates(about).values
    assert figures["sets"] == 10
    generator = about.generator("batch_mates")
    sentence, *others = generator.permutation(400).tolist()
    assert figures["sentence"] == sentence
    length = int(about.task.lengths("train")[sentence][0])
    sets = []
    for _ in range(10):
        chosen = generator.choice(others, 31, replace=False).tolist()
        assert sentence not in chosen
        batch = about.batch("train", [sentence, *chosen])
        with torch.no_grad(), normalized_by(about.model, "batch"):
            memory = about.model.encode(batch.source, Stream(batch.source_valid))
        sets.append(memory[0, :length])
    together = torch.stack(sets).double()
    apart = (together - together.mean(0)).square().mean().sqrt()
    expected = float(apart / together.square().mean().sqrt())
    assert figures["values"]["training"]["encoder"] == pytest.approx(expected, rel=1e-5)
    most = max(figures["values"]["training"].values())
    assert f"in training its values change by {percent(most)} " in batch_mates._answer(figures)


def test_weights_are_those_that_the_core_mixes_by(tmp_path):
    about = subject(tmp_path, "norm=ln")
    seen = {}

    def look(core, arguments, output):
        query, key, value, visible = arguments
        seen[id(core)] = attention_weights(query, key, visible) @ value[0], output[0]

    handles = [
        core.register_forward_hook(look) for core in sites(about.model, AttentionCore).values()
    ]
    with torch.no_grad():
        about.task.losses(about.model, about.batch("train", range(5)))
    for handle in handles:
        handle.remove()
    assert len(seen) == len(ATTENTIONS)
    for mixed, output in seen.values():
        torch.testing.assert_close(mixed, output)


def test_hidden_keys_have_no_weight():
    query, key = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    weights = attention_weights(query, key, causal)
    assert torch.equal(weights, weights.tril())
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))
    torch.testing.assert_close(
        attention_weights(query, key, None),
        (query[0] @ key[0].transpose(1, 2) / math.sqrt(5)).softmax(-1),
    )


def test_total_variation_by_hand():
    one = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    two = torch.tensor([[[0.0, 1.0], [0.5, 0.5]]])
    # The mean of the first row is (1/2, 1/2), from which each is 1/2 away; the second row is still.
    assert total_variation([one, two]) == pytest.approx(0.25)
    wider = torch.tensor([[[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]])
    assert total_variation([one, wider]) == pytest.approx(0.25)
    assert total_variation([one, one]) == 0


def test_deviation_by_hand():
    sets = torch.tensor([[3.0, 1.0], [5.0, 1.0]])
    # Deviations -1, 0, 1, 0 over 9 + 1 + 25 + 1, each of four values.
    assert deviation(sets) == pytest.approx(math.sqrt(2 / 36))
    looks = [Look(last={"encoder": row[None]}, weights={}) for row in sets]
    assert last_values(looks) == {"encoder": pytest.approx(math.sqrt(2 / 36))}


def test_movement_by_hand_and_in_words():
    base = torch.tensor([3.0, 4.0])
    assert movement(base + torch.tensor([0.3, 0.4]), base) == pytest.approx(0.1)
    assert movement(base, base) == 0
    assert movement(base, torch.zeros(2)) == math.inf
    assert movement(torch.zeros(2), torch.zeros(2)) == 0
    assert by_how_much(0.0) == "not at all"
    assert by_how_much(1e-7) == "not at all (rounding)"
    assert by_how_much(0.1234) == "by 12.3 %"
    assert by_how_much(math.nan) == "by nan %"
    assert [percent(x) for x in (0.0, 1.2345, 0.01, 2e-5)] == [
        "0.00 %",
        "123 %",
        "1.00 %",
        "0.00200 %",
    ]


def test_an_attention_belongs_to_its_stack():
    stacks = {"encoder": 0, "decoder": 0}
    assert stack_of("encoder.0.self", stacks) == "encoder"
    assert stack_of("decoder.1.cross", stacks) == "decoder"
    assert stack_of("0.self", {"": 0}) == ""
