"""Who sees whom, from the axes of each norm alone, and the derivatives of a stack by hand."""

import math
from dataclasses import replace

import pytest
import torch

from normlab.inspect import batch_mates, leak, order, outlier, sampling, stepwise
from normlab.inspect.leak import derivative, leaks, split
from normlab.inspect.model import Ends
from normlab.norms.base import Stream
from tests.inspect.subjects import EVERY_KIND, OVER_BATCH, OVER_TIME, examined, subject, trained


@EVERY_KIND
def test_a_norm_leaks_along_its_axes_and_no_further(tmp_path, norm, placement):
    finding = examined(trained(tmp_path, f"norm={norm}", f"placement={placement}"), leak.leak)
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
    over_sample = norm in {"in", "seqn", "gn_sample"}
    assert finding.answer.endswith("in eval nothing leaks") != over_sample
    assert finding.answer.startswith("in training nothing leaks") == (
        norm not in OVER_BATCH | OVER_TIME
    )


def test_answer_names_the_leaking_stack_and_what_it_sees(tmp_path):
    answer = leak.leak(trained(tmp_path, "norm=in")).answer
    assert "the decoder depends on later positions (" in answer
    assert "encoder" not in answer
    assert "other sentences" not in answer
    answer = leak.leak(trained(tmp_path, "norm=bn_position")).answer
    assert "the encoder depends on other sentences (" in answer
    assert "later positions" not in answer


def test_a_decoder_without_batch_norm_sees_other_sentences_through_the_encoder(tmp_path):
    found = leak.leak(trained(tmp_path, "norm=bn", "norm@decoder_norm=ln")).values["training"]
    assert found["decoder"]["others"] > 1e-6
    assert found["decoder"]["later"] == 0
    found = leak.leak(trained(tmp_path, "norm=ln", "norm@decoder_norm=bn")).values["training"]
    assert found["decoder"]["others"] > 1e-6
    assert found["decoder"]["later"] > 1e-6
    assert found["encoder"]["others"] == 0


def test_a_norm_on_the_embedding_leaks_too(tmp_path):
    found = leak.leak(trained(tmp_path, "norm=ln", "norm@embedding_norm=bn")).values
    assert found["training"]["decoder"]["later"] > 1e-6
    assert found["eval"]["decoder"]["later"] == 0


def test_norms_that_evaluate_by_the_batch_leak_in_eval(tmp_path):
    found = leak.leak(trained(tmp_path, "norm=bn", "norm.eval_stats=batch")).values
    assert found["eval"] == found["training"]


def test_slope_is_split_by_place_and_padding_is_left_out():
    slope = torch.zeros(2, 3, 2)
    slope[0, 0] = torch.tensor([3.0, 4.0])
    slope[0, 1] = torch.tensor([5.0, 12.0])
    slope[0, 2] = 100.0
    slope[1, 0] = torch.tensor([8.0, 15.0])
    slope[1, 1:] = 100.0
    valid = torch.tensor([[True, True, False], [True, False, False]])
    assert split(slope, valid) == pytest.approx((5.0, 13.0, 17.0))


def test_derivative_by_hand():
    # y at sentence 0, position 0 is e_0 + 2 e_later + 3 e_other + 4 f_other, f another stream.
    e, f = (torch.randn(2, 2, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    last = torch.zeros(2, 2, 5, dtype=torch.float64)
    last = last + (e[0, 0] + 2 * e[0, 1] + 3 * e[1, 0] + 4 * f[1, 1] + 9 * f[0, 1])
    valid = torch.ones(2, 2, dtype=torch.bool)
    ends = {"one": Ends(e, valid, last), "two": Ends(f, valid, f * 1)}
    stream = Stream(valid)
    found = derivative("one", {"one": (e, stream), "two": (f, stream)}, ends, seed=3)
    assert found["later"] == pytest.approx(2)
    assert found["others"] == pytest.approx(math.hypot(3, 4))
    projection = torch.randn(5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert found["own"] == pytest.approx(float(projection.norm()))


def test_one_token_has_no_later_ones():
    e = torch.randn(2, 2, 5, dtype=torch.float64, requires_grad=True)
    valid = torch.tensor([[True, False], [True, True]])
    entries, ends = {"one": (e, Stream(valid))}, {"one": Ends(e, valid, e * 2)}
    found = derivative("one", entries, ends, seed=0)
    assert found["later"] is None
    assert found["others"] == 0
    assert leaks(found, both_ways=False) == {}


def test_only_what_is_not_due_counts_as_a_leak():
    found = {"own": 1.0, "later": 0.5, "others": 1e-12}
    assert leaks(found, both_ways=True) == {}
    assert leaks(found, both_ways=False) == {"later": 0.5}
    assert leaks({**found, "others": 1e-8}, both_ways=True) == {"others": 1e-8}


@pytest.mark.parametrize(
    ("ask", "number"), [(leak.leak, 1), (batch_mates.batch_mates, 2), (sampling.batch_mean, 15)]
)
def test_too_few_sentences_are_named(tmp_path, ask, number):
    about = subject(tmp_path, "norm=bn")

    class Few(type(about.task)):
        def __init__(self):
            pass

        def lengths(self, split):
            return about.task.lengths(split)[:number]

    assert ask(replace(about, task=Few())).why_not


@pytest.mark.parametrize("ask", [leak.leak, order.order, outlier.outlier, stepwise.stepwise])
def test_the_same_question_has_the_same_answer(tmp_path, ask):
    about = trained(tmp_path, "norm=bn")
    assert ask(about) == ask(about)
