"""Two norms with seed k: the same weights elsewhere, and the same dropped units."""

import pytest
import torch

from normlab.config.compose import compose
from normlab.config.plain import to_dict
from normlab.dropout import Dropout
from normlab.models.layers import Linear, initialize
from normlab.norms.base import Norm
from normlab.training.build import build_model
from tests.models.small import (
    BOS,
    IN_OTHERS,
    NORMS,
    PLACEMENTS,
    Words,
    logits,
    sentences,
    seq2seq,
)

SMALL = ["model.dim=16", "model.ffn_dim=32", "model.encoder_layers=1", "model.decoder_layers=1"]


def weights_of(norm, seed=3, place="pre", *more):
    overrides = [f"norm={norm}", f"seed={seed}", f"placement={place}", *SMALL, *more]
    model = build_model(to_dict(compose(overrides)), Words())
    of_norms = {
        f"{name}.{parameter}"
        for name, module in model.named_modules()
        if isinstance(module, Norm)
        for parameter, _ in module.named_parameters()
    }
    values = {k: v.detach().numpy().tobytes() for k, v in model.named_parameters()}
    return {k: v for k, v in values.items() if k not in of_norms}


@pytest.fixture(scope="module")
def of_layer_norm():
    return weights_of("ln")


@pytest.mark.parametrize(("norm", "place"), [(n, "pre") for n in NORMS] + [("bn", "post")])
def test_all_other_weights_of_a_seed_are_the_same(norm, place, of_layer_norm):
    assert weights_of(norm, 3, place) == of_layer_norm


@pytest.mark.parametrize("place", PLACEMENTS)
def test_a_placement_scales_the_weights_of_a_seed_and_draws_no_others(place):
    weights, drawn = (
        {
            name: (part.weight.detach(), part.gains)
            for name, part in seq2seq("ln", option).named_modules()
            if isinstance(part, Linear)
        }
        for option in (place, "pre")
    )
    assert weights.keys() == drawn.keys()
    for name, (weight, gains) in weights.items():
        blocks = zip(weight.chunk(len(gains)), gains, strict=True)
        other, own = drawn[name]
        for (block, gain), of_pre, pre in zip(blocks, other.chunk(len(own)), own, strict=True):
            torch.testing.assert_close(block, of_pre * (gain / pre), rtol=1e-6, atol=1e-8)


def test_another_seed_has_other_weights_but_for_the_zero_biases(of_layer_norm):
    other = weights_of("ln", 4)
    assert other.keys() == of_layer_norm.keys()
    same = {name for name in other if other[name] == of_layer_norm[name]}
    assert same == {name for name in other if name.endswith("bias")}


def test_initialize_draws_nothing_from_the_default_generator():
    model = seq2seq()
    state = torch.get_rng_state()
    initialize(model, 5)
    assert torch.equal(torch.get_rng_state(), state)


def test_initial_values_follow_the_stated_distributions():
    model = seq2seq(dim=256, num_heads=2, ffn_dim=128, vocab=997, encoder_layers=1)
    model.requires_grad_(False)
    layer = model.encoder.layers[0]
    # uniform in [-bound, bound] with Xavier's bound, by 1/sqrt(2) for each of q, k, v
    bound = (6 / (256 + 256)) ** 0.5
    for block in layer.self_attention.qkv_proj.weight.chunk(3):
        assert block.abs().max() == pytest.approx(bound / 2**0.5, rel=1e-3)
        assert block.std() == pytest.approx(bound / 2**0.5 / 3**0.5, rel=0.02)
    assert layer.self_attention.out_proj.weight.abs().max() == pytest.approx(bound, rel=1e-3)
    assert layer.feed_forward.fc1.weight.abs().max() == pytest.approx(
        (6 / (256 + 128)) ** 0.5, rel=1e-3
    )
    table = model.encoder.embedding.tokens.weight
    assert not table[0].any()
    assert table[1:].std() == pytest.approx(256**-0.5, rel=0.02)
    assert not layer.feed_forward.fc1.bias.any()


@pytest.mark.parametrize("place", PLACEMENTS)
def test_two_norms_drop_the_same_units(place, monkeypatch):
    drawn, forward = [], Dropout.forward

    def dropped(self, x):
        drawn.append(forward(self, torch.ones_like(x)))
        return x * drawn[-1]

    monkeypatch.setattr(Dropout, "forward", dropped)
    source, _ = sentences([5, 3], seed=1)
    target, _ = sentences([4, 4], seed=2, first=BOS)

    def masks(norm):
        model = seq2seq(norm, place, dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
        drawn.clear()
        torch.manual_seed(11)
        logits(model.train(), source, target)
        return list(drawn)

    expected = masks("ln")
    # two embeddings; attention, residual, activation, residual in 2 encoder layers; and in 2
    # decoder layers an attention and a residual more
    assert len(expected) == 2 + 2 * 4 + 2 * 6
    for norm in IN_OTHERS.get(place, ["none", "bn", "pn", "in"]):
        found = masks(norm)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), norm
