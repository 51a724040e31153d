"""Models with the same seed and different norms share all other weights and dropped units."""

import pytest
import torch

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
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
def layer_norm_weights():
    return weights_of("ln")


@pytest.mark.parametrize(("norm", "place"), [(n, "pre") for n in NORMS] + [("bn", "post")])
def test_models_with_different_norms_share_all_other_initial_weights_of_a_seed(
    norm, place, layer_norm_weights
):
    assert weights_of(norm, 3, place) == layer_norm_weights


@pytest.mark.parametrize("place", PLACEMENTS)
def test_a_placement_rescales_the_weights_of_a_seed_but_does_not_redraw_them(place):
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


def test_a_different_seed_changes_all_weights_except_the_zero_biases(layer_norm_weights):
    other = weights_of("ln", 4)
    assert other.keys() == layer_norm_weights.keys()
    same = {name for name in other if other[name] == layer_norm_weights[name]}
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
def test_models_with_different_norms_drop_the_same_units(place, monkeypatch):
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
    # two embeddings; attention, residual, activation, residual in each of 2 encoder layers;
    # and in each of 2 decoder layers one more attention and residual
    assert len(expected) == 2 + 2 * 4 + 2 * 6
    for norm in IN_OTHERS.get(place, ["none", "bn", "pn", "in"]):
        found = masks(norm)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), norm
