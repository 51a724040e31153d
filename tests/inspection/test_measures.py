"""The questions' measures checked by hand, and the computed parts of claims."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from normlab.claims.evidence import to_json
from normlab.inspection.claim_checks import compute
from normlab.inspection.claim_checks.order import rank_correlation
from normlab.inspection.model.batch_mate_sets import attention_weights, total_variation
from normlab.inspection.model.gradient_leak import derivatives
from normlab.inspection.model.held_out_loss import by_length, loss
from normlab.inspection.model.padding_shares import same_lengths
from normlab.inspection.model.recorded_pass import RecordedPass, by_how_much, record
from normlab.inspection.model.stepwise_decoding import differences
from normlab.inspection.questions import questions
from normlab.models.attention import AttentionCore
from normlab.norms.tokens import Tokens
from normlab.probes.sites import modules_by_site
from tests.inspection.subjects import subject, trained

KEPT = Path(__file__).resolve().parents[2] / "results" / "computed.json"


def test_all_computed_parts_give_what_the_ledger_keeps():
    assert to_json({each.name: each.ask() for each in questions("claim")}) == KEPT.read_text(
        "utf-8"
    )
    with pytest.raises(ValueError, match=r"no question 'padding.eats'; .*padding.pollutes"):
        compute("padding.eats")


def test_the_correlation_of_ranks_is_spearmans():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
    # 1 - 6 sum(d^2) / (n (n^2 - 1)) with d = 1, 1, 1, 1, 0
    found = rank_correlation(x, torch.tensor([[20.0, 1.0, 40.0, 30.0, 50.0]]))
    assert found == {"rho": pytest.approx(1 - 6 * 4 / 120), "exact": 0.0}
    assert rank_correlation(x, x.exp()) == {"rho": pytest.approx(1), "exact": 1.0}


def test_a_change_in_words():
    texts = [by_how_much(x) for x in (0.0, 1e-7, 0.1234, math.nan)]
    assert texts == ["not at all", "not at all (rounding)", "by 12.3 %", "by nan %"]


def test_weights_are_those_that_the_core_mixes_by(tmp_path):
    about = subject(tmp_path, "norm=ln")
    mixed = {}
    handles = [
        core.register_forward_hook(
            lambda _, given, output, name=name: mixed.update({name: (given[2][0], output[0])})
        )
        for name, core in modules_by_site(about.model, AttentionCore).items()
    ]
    seen = record(about, about.batch("train", range(5)))
    for handle in handles:
        handle.remove()
    assert sorted(seen.attentions) == ["decoder.0.cross", "decoder.0.self", "encoder.0.self"]
    for name, each in seen.attentions.items():
        value, output = mixed[name]
        weights = attention_weights(each.query, each.key, each.visible)
        torch.testing.assert_close(weights @ value, output)


def test_total_variation_by_hand():
    one = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    two = torch.tensor([[[0.0, 1.0], [0.5, 0.5]]])
    # The first row's mean is (1/2, 1/2), at a distance of 1/2 from each; the second row is
    # constant.
    assert total_variation([one, two]) == pytest.approx(0.25)
    wider = torch.tensor([[[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]])
    assert total_variation([one, wider]) == pytest.approx(0.25)


def test_derivative_by_hand():
    # y at sentence 0, position 0 is e_0 + 2 e_later + 3 e_other + 4 f_other, f another stream.
    e, f = (torch.randn(2, 2, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    last = torch.zeros(2, 2, 5, dtype=torch.float64)
    last = last + (e[0, 0] + 2 * e[0, 1] + 3 * e[1, 0] + 4 * f[1, 1] + 9 * f[0, 1])
    tokens = Tokens(torch.ones(2, 2, dtype=torch.bool))
    seen = RecordedPass()
    seen.calls["stack"] = {"one": [((e, tokens), last)]}
    seen.entered = {"one": (e, tokens), "two": (f, tokens)}
    found = derivatives("one", seen, seed=3)
    assert found.later == pytest.approx(2)
    assert found.others == pytest.approx(math.hypot(3, 4))
    projection = torch.randn(5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert found.own_token == pytest.approx(float(projection.norm()))


def test_a_loss_is_that_of_all_target_tokens_in_whatever_batches(tmp_path):
    about = trained(tmp_path, "norm=ln")
    batch = about.batch("valid", range(7))
    with torch.no_grad():
        logits = about.task.stepwise(about.model, batch)[0]
    smoothing = about.config["task"]["label_smoothing"]
    expected = float(F.cross_entropy(logits, batch.tgt_out, label_smoothing=smoothing))
    for size in (1, 3, 7):
        batches = by_length(about, np.arange(7), size=size)
        assert loss(about, batches) == pytest.approx(expected, rel=1e-5)


def test_differences_by_hand():
    whole = torch.tensor([[0.0, math.log(3)], [0.0, 0.0], [1.0, 0.0]])
    steps = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [1.0, 0.0]])
    targets = torch.tensor([0, 1, 0])
    found = differences(whole, steps, targets)
    assert found["tokens"] == 3 and found["changed"] == pytest.approx(1 / 3)
    assert [*found["difference"].values()] == pytest.approx([math.log(3) / 3, math.log(3)])
    gain = found["loss"]["whole"] - found["loss"]["stepwise"]
    assert gain == pytest.approx(math.log(3) / 3) and not found["same"]
    assert differences(whole, whole, targets)["same"]


def test_the_most_common_combination_of_lengths_is_taken():
    def picked(lengths):
        found = same_lengths(np.array(lengths), longest=100, generator=np.random.default_rng(0))
        return [lengths[index] for index in found]

    assert picked([(5, 6)] * 9 + [(5, 7)] * 40 + [(5, 8)] * 20) == [(5, 7)] * 32
    assert picked([(5, 6)] * 9 + [(5, 7)] * 4) == [(5, 6)] * 9
