"""What else an output depends on, from the axes of each norm alone, and by hand."""

import math
from dataclasses import replace

import pytest
import torch

from normlab.inspect import others, sampling
from normlab.inspect.model import Seen, Values, by_how_much, movement, percent
from normlab.inspect.others import attention_weights, derivative, total_variation
from normlab.models.attention import AttentionCore
from normlab.norms.base import Stream
from normlab.probes.sites import sites
from tests.inspect.subjects import EVERY_KIND, OVER_BATCH, OVER_TIME, examined, subject, trained

ATTENTIONS = ["encoder.0.self", "decoder.0.self", "decoder.0.cross"]


@EVERY_KIND
def test_batch_mates_count_in_training_where_the_batch_is_pooled(
    tmp_path, monkeypatch, norm, placement
):
    monkeypatch.setattr(others, "SETS", 3)
    finding = examined(
        trained(tmp_path, f"norm={norm}", f"placement={placement}"), others.batch_mates
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


def test_total_variation_by_hand():
    one = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    two = torch.tensor([[[0.0, 1.0], [0.5, 0.5]]])
    # The mean of the first row is (1/2, 1/2), from which each is 1/2 away; the second row is still.
    assert total_variation([one, two]) == pytest.approx(0.25)
    wider = torch.tensor([[[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]])
    assert total_variation([one, wider]) == pytest.approx(0.25)
    assert total_variation([one, one]) == 0


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
    assert [percent(x) for x in (0.0, 1.2345, 1 - 1e-9, 0.01, 2e-5)] == [
        "0.00 %",
        "123 %",
        "100 %",
        "1.00 %",
        "0.00200 %",
    ]


@EVERY_KIND
def test_a_norm_leaks_along_its_axes_and_no_further(tmp_path, norm, placement):
    finding = examined(trained(tmp_path, f"norm={norm}", f"placement={placement}"), others.leak)
    for mode in ("training", "eval"):
        found = finding.values[mode]
        over_batch = norm in OVER_BATCH and mode == "training"
        over_time = norm in OVER_TIME and (norm not in OVER_BATCH or mode == "training")
        for stack in ("encoder", "decoder"):
            assert found[stack]["own"] > 0
            assert (found[stack]["others"] > 1e-6) == over_batch
            if not over_batch:
                assert found[stack]["others"] == 0
        assert found["encoder"]["later"] > 1e-6  # it attends both ways
        assert (found["decoder"]["later"] > 1e-6) == over_time
        if not over_time:
            assert found["decoder"]["later"] == 0
    assert finding.values["attends_both_ways"] == {"encoder": True, "decoder": False}
    over_sample = norm in {"in", "seqn"}
    assert finding.answer.endswith("in eval nothing leaks") != over_sample
    assert finding.answer.startswith("in training nothing leaks") == (
        norm not in OVER_BATCH | OVER_TIME
    )


def test_other_sentences_leak_through_the_encoder_and_a_norm_on_the_embedding(tmp_path):
    found = others.leak(trained(tmp_path, "norm=bn", "norm@decoder_norm=ln")).values["training"]
    assert found["decoder"]["others"] > 1e-6
    assert found["decoder"]["later"] == 0
    found = others.leak(trained(tmp_path, "norm=ln", "norm@embedding_norm=bn")).values
    assert found["training"]["decoder"]["later"] > 1e-6
    assert found["eval"]["decoder"]["later"] == 0


def test_derivative_by_hand():
    # y at sentence 0, position 0 is e_0 + 2 e_later + 3 e_other + 4 f_other, f another stream.
    e, f = (torch.randn(2, 2, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    last = torch.zeros(2, 2, 5, dtype=torch.float64)
    last = last + (e[0, 0] + 2 * e[0, 1] + 3 * e[1, 0] + 4 * f[1, 1] + 9 * f[0, 1])
    valid = torch.ones(2, 2, dtype=torch.bool)
    stacks = {"one": Values(last, valid), "two": Values(f * 1, valid)}
    stream = Stream(valid)
    entered = {"one": (e, stream), "two": (f, stream)}
    found = derivative("one", Seen(stacks=stacks, entered=entered), seed=3)
    assert found["later"] == pytest.approx(2)
    assert found["others"] == pytest.approx(math.hypot(3, 4))
    projection = torch.randn(5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert found["own"] == pytest.approx(float(projection.norm()))


@pytest.mark.parametrize(
    ("ask", "number"), [(others.leak, 1), (others.batch_mates, 2), (sampling.batch_mean, 15)]
)
def test_too_few_sentences_are_named(tmp_path, ask, number):
    about = subject(tmp_path, "norm=bn")

    class Few(type(about.task)):
        def __init__(self):
            pass

        def lengths(self, split):
            return about.task.lengths(split)[:number]

    assert ask(replace(about, task=Few())).why_not
