"""Probes on held-out examples: exact cases of their formulas, and their results on runs."""

import copy
import math
import random
from dataclasses import replace

import pytest
import torch
from torch import nn

from normlab.any_model.surgery.ablation import quantized
from normlab.inspection.model import held_out_loss, held_out_probes, int8, layer_skip
from normlab.inspection.model.built_model import model_from_overrides
from normlab.inspection.model.int8 import quantized_losses
from normlab.inspection.model.layer_skip import losses_without
from normlab.inspection.questions import questions
from normlab.models.seq2seq import Layer
from normlab.norms.bounded import BoundedMap
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from normlab.probes.activations import Activations, describe, describe_attention
from normlab.probes.representation import Rank, Saturation, ranks
from normlab.probes.sites import ModuleCall, modules_by_site
from tests.inspection.subjects import examined, subject, trained
from tests.tasks.sentences import WORDS

CAUSAL = torch.ones(64, 64, dtype=torch.bool).tril()


def sinks(weights, visible=CAUSAL, lengths=(64,)):
    """Return the metrics of an attention with these weights, `[P, S]`, in every sequence."""
    size, count = weights.shape[0], len(lengths)
    query = (weights.clamp(min=1e-30).log() * math.sqrt(size)).expand(count, 1, size, size)
    valid = torch.arange(size) < torch.tensor(lengths)[:, None]
    visible = valid[:, None, None] if visible is None else visible[:size, :size]
    key = torch.eye(size).expand(count, 1, size, size)
    return describe_attention(query, key, visible, valid, threshold=0.99)


def uniform(size):
    return torch.ones(size, size).tril() / torch.arange(1, size + 1)[:, None]


def test_a_sink_is_a_head_that_looks_at_the_first_key():
    first = torch.zeros(64, 64)
    first[:, 0] = 1
    for weights, share in ((torch.eye(64), 0), (first, 1), (uniform(64), 0)):
        found = sinks(weights)
        assert float(found["sink"]) == share and "sink_unmasked" not in found
    # The first key gets 0.31 from the uniform attention of 9 tokens, which are too few.
    assert "sink" not in sinks(uniform(9), lengths=(9,))
    # A quarter of the queries attends only to the first key: 0.25 of all 64, but 1 of the first 16.
    some = torch.eye(64)
    some[:16] = first[:16]
    for lengths, share in (((64,), 0), ((16, 64), 0.5), ((9, 64), 0)):
        assert float(sinks(some, lengths=lengths)["sink"]) == share
    # Queries after the 64th do not count with a causal mask; all queries count without one.
    long = torch.eye(80)
    long[64:, 0] = 1
    long[64:, 64:] = 0
    wide = torch.ones(80, 80, dtype=torch.bool).tril()
    assert float(sinks(long, wide, lengths=(80,))["sink"]) == 0
    long[:20] = long[-1]
    found = sinks(long, None, lengths=(80, 9))
    assert float(found["sink_unmasked"]) == 1 and "sink" not in found


def test_the_largest_value_is_compared_with_the_median_of_real_ones_and_located():
    x = torch.ones(2, 3, 4)
    x[1, 1, 2], x[0, 2] = -30.0, 500.0
    valid = torch.tensor([[True, True, False], [True, True, True]])
    found = describe(x, valid, threshold=6.0)
    assert [float(found[n]) for n in ("over_median", "feature", "position")] == [30, 2, 1]
    model = nn.Sequential(BoundedMap(4, function="tanh", alpha=1.0, shift=None, affine=True))
    probe = Activations(every=1, threshold=6.0)
    probe.attach(model)
    probe.before_forward(1)
    model(x)
    row = probe.metrics_of(probe.collect())
    assert "over_median/0" in row and not any("position" in name for name in row)


def test_ranks_count_the_directions_of_centered_states():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4096, 64, generator=draw)
    massive = x.clone()
    massive[:, 7] += 1000.0  # the same for every token
    for states in (x, massive):
        found = ranks(states)
        assert float(found["participation"]) == pytest.approx(63.0, abs=0.1)
        assert float(found["effective"]) == pytest.approx(63.9, abs=0.1)
    line = torch.randn(100, 1, generator=draw) * torch.randn(8, generator=draw) + 5
    assert [float(rank) for rank in ranks(line).values()] == pytest.approx([1, 1], abs=1e-3)
    axes = torch.cat([torch.eye(4), -torch.eye(4)])
    assert [float(rank) for rank in ranks(axes).values()] == pytest.approx([4, 4])


def test_a_rank_needs_ten_real_tokens_per_feature():
    class Two(nn.Module):
        streams = 2

    y = torch.randn(2, 20, 8, generator=torch.Generator().manual_seed(0))
    probe, valid = Rank(every=1, tokens=10), torch.ones(2, 20, dtype=torch.bool)
    found = probe.measure_call(ModuleCall("a", Two(), (y, Tokens(valid)), y))
    assert found == ranks(y[..., :4].flatten(0, 1))  # 40 tokens of the first stream
    valid[1, -1] = False
    assert probe.measure_call(ModuleCall("a", Two(), (y, Tokens(valid)), y)) == {}


@pytest.mark.parametrize(
    ("function", "above"), [("tanh", 2.0), ("erf", 1.4825), ("isru", 0.964 / math.sqrt(0.070704))]
)
def test_saturated_are_real_values_near_the_bound_whatever_the_gain(function, above):
    root = function == "isru"  # times sqrt(D), as in DyISRU
    norm = BoundedMap(5, function=function, alpha=0.5, shift=None, affine=True, root_width=root)
    nn.init.constant_(norm.weight, 0.1)
    x = 3 * above * torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(0))
    valid = torch.arange(40) < torch.tensor([40, 9, 30])[:, None]
    found = Saturation(every=1, threshold=0.964).measure_call(
        ModuleCall("a", norm, (x, Tokens(valid)), x)
    )
    share = float((0.5 * x[valid].abs() > above).double().mean())
    assert float(found["share"]) == pytest.approx(share, abs=1e-6) and 0.1 < share < 0.9


def test_bhyt_saturates_where_rms_norm_times_lam_over_kappa_is_above_2():
    norm = make_norm("bhyt", 5, lam=3.0, kappa=1.0)
    x = torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(0))
    probe = Saturation(every=1, threshold=math.tanh(2))
    assert probe.applies(norm) and not probe.applies(make_norm("rms", 5))
    found = probe.measure_call(ModuleCall("a", norm, (x, Tokens(torch.ones(3, 40) > 0)), x))
    share = float((3 * make_norm("rms", 5, eps=1e-6)(x).abs() > 2).double().mean())
    assert float(found["share"]) == pytest.approx(share, abs=1e-6) and 0.1 < share < 0.9


def test_one_outlier_rounds_almost_all_other_values_to_zero():
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def decibels(values):
        error = (quantized(values, values.abs().amax(), 8) - values)[: len(x)]
        return float(10 * (x.square().sum() / error.square().sum()).log10())

    # Rounding errors are uniform within a step: 39.6 dB if the largest value is 4.6.
    expected = 10 * math.log10(12 * 127**2 / float(x.abs().amax()) ** 2)
    assert decibels(x) == pytest.approx(expected, abs=0.1) and 38.5 < expected < 41
    assert 0 <= decibels(torch.cat([x, x.new_tensor([1000.0])])) < 0.01
    largest = x.abs().amax()
    assert torch.equal(quantized(512 * x, 512 * largest, 8), 512 * quantized(x, largest, 8))
    assert len(quantized(x, largest, 3).unique()) == 7
    assert torch.equal(quantized(0 * x, x.new_zeros(()), 8), 0 * x)


def test_layers_of_any_model_are_quantized_and_skipped_and_stay_as_they_were():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3)).double()
    x, before = torch.randn(50, 6).double(), copy.deepcopy(model.state_dict())

    def loss():
        return float(model(x).square().mean())

    plain = loss()
    layers = [model[0], model[2]]
    eight = quantized_losses(layers, lambda: model(x / 2), loss)
    assert list(eight) == ["W8A8", "W8", "A8"] and len({plain, *eight.values()}) == 4
    rounded = copy.deepcopy(model)
    for layer in (rounded[0], rounded[2]):
        layer.weight.data = quantized(layer.weight.data, layer.weight.abs().amax(), 8)
    assert eight["W8"] == float(rounded(x).square().mean())
    mid = model[1](model[0](quantized(x, (x / 2).abs().amax(), 8)))
    top = model[1](model[0](x / 2)).abs().amax()
    clipped = model[3](model[2](quantized(mid, top, 8))).square().mean()
    assert eight["A8"] == pytest.approx(float(clipped))
    fine = quantized_losses(layers, lambda: model(x), loss, bits=16)
    assert all(abs(value - plain) < 1e-4 for value in fine.values())

    class Pair(nn.Module):
        def forward(self, x):
            return 2 * x, "state"

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Pair(), nn.Linear(6, 6).double()

        def forward(self, x):
            y, state = self.a(x=x)
            assert state == "state"
            return self.b(y)

    two = Two()
    found = losses_without({"a": two.a, "b": two.b}, lambda: float(two(x).sum()))
    assert found == pytest.approx({"a": float(two.b(x).sum()), "b": float(2 * x.sum())})
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in (*model, *two.modules()))


def test_a_layer_without_a_branch_costs_nothing_and_both_streams_skip(tmp_path):
    about = trained(tmp_path, "norm=ln", "placement=resi_dual")
    found = examined(about, layer_skip.layer_skip).values
    assert list(found["rise"]) == ["encoder.0", "decoder.0"]
    assert found["loss"] == held_out_loss.held_out_loss(about)()
    model = copy.deepcopy(about.model)
    model.decoder.layers = nn.ModuleList()  # the opening already made two streams
    without = held_out_loss.held_out_loss(replace(about, model=model))()
    assert found["rise"]["decoder.0"] == pytest.approx(without - found["loss"])
    still = trained(tmp_path, "norm=ln")
    model = copy.deepcopy(still.model)
    for layer in modules_by_site(model, Layer).values():
        for name, parameter in layer.named_parameters():
            if "out_proj" in name or "fc2" in name:
                nn.init.zeros_(parameter)
    rises = layer_skip.layer_skip(replace(still, model=model)).values["rise"]
    assert set(rises.values()) == {0.0}


def test_a_language_model_answers_by_a_batch_that_no_seed_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(int8, "CALIBRATION", 2)
    monkeypatch.setattr(held_out_probes, "TOKENS", 2000)
    draw = random.Random(0)
    for split, documents in (("train", 40), ("valid", 40), ("test", 2)):
        texts = [
            "\n".join(" ".join(draw.choices(WORDS, k=9)) for _ in range(12))
            for _ in range(documents)
        ]
        (tmp_path / f"{split}.txt").write_text("\n\n".join(texts))
    data = (f"data_dir={tmp_path}", "task/corpus=documents", "task.vocab_size=330")
    lm = ("task=lm", *data, "task.max_length=64", "norm=dyt", "model.depth=1", "batch_size=8")
    sizes = ("model.dim=32", "model.ffn_dim=64", "model.num_heads=2")
    about, other = (model_from_overrides([*lm, *sizes, f"seed={seed}"]) for seed in (1, 2))
    picked = held_out_probes.held_out(about)
    assert picked == held_out_probes.held_out(other) and len(picked) >= 32
    assert 2000 <= about.task.lengths("valid")[picked].sum() < 4000
    names = ("attention", "activations", "rank", "saturation", "layer_skip", "int8")
    found = {each.name: examined(about, each.ask) for each in questions("model", names=names)}
    assert "sink in 0.00 % of heads with a causal mask" in found["attention"].answer
    place = found["activations"].values["places"]["decoder.final"]
    assert place["feature"] in range(32) and place["position"] in range(64)
    assert 8 < found["rank"].values["places"]["decoder.0.ffn"]["effective"] < 32
    assert found["saturation"].values["places"]["decoder.final"]["share"] < 0.05
    assert len(found["int8"].table.rows) == 3 and len(found["layer_skip"].table.rows) == 1
    few = replace(about, config={**about.config, "model": {"dim": 10**6}})
    assert held_out_probes.held_out(few) == [*range(about.number("valid"))]


def test_what_does_not_apply_says_why(tmp_path):
    about = subject(tmp_path, "norm=ln")  # 7 sentences, with fewer than 10 tokens per feature
    found = [getattr(held_out_probes, name)(about).why_not for name in ("rank", "saturation")]
    assert "held-out tokens are too few" in found[0] and "such as dyt" in found[1]
    digits = model_from_overrides(["task=digits", "model=resnet8", "model.width=4"])
    for ask in (layer_skip.layer_skip, int8.int8):
        assert ask(digits).why_not == "the model has no Transformer layers"
