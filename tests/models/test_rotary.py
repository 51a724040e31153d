"""Rotary positions: their formula, pairs, decoding, and where they are refused."""

import pytest
import torch

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.models.rotary import Rope, Rotary
from normlab.training.build import build_model
from tests.models.blocks import GATES, Images, block, double, whole
from tests.models.small import BOS, assert_close, logits, sentences, seq2seq
from tests.models.test_decoding import stepped


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
def test_rotary_positions_preserve_lengths_and_scores_depend_only_on_distance(pairs):
    rotary = Rope(pairs=pairs).in_layer(0, 8)
    q, k = double(2, 3, 5, 8), double(2, 3, 5, 8)
    scores = [rotary(q, start) @ rotary(k, start).mT for start in (0, 7)]
    torch.testing.assert_close(*scores, rtol=0, atol=1e-12)
    assert_close(rotary(q, 7).norm(dim=-1), q.norm(dim=-1))
    assert not torch.allclose(scores[0], q @ k.mT)


def test_rotary_angles_follow_the_published_formula():
    q = double(1, 1, 4, 6)
    pairs = torch.view_as_complex(q.unflatten(-1, (3, 2)))
    positions = torch.arange(2, 6, dtype=torch.float64)
    angles = positions[:, None] * 50.0 ** -(torch.arange(3, dtype=torch.float64) / 3)
    expected = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles))
    found = Rotary(6, base=50.0, pairs="interleaved")(q, 2)
    torch.testing.assert_close(found, expected.flatten(-2), rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_two_kinds_of_rotary_pairs_differ_only_in_the_order_of_rows_and_gains():
    models = [block(qk_norm="rms", rope=Rope(pairs=pairs)) for pairs in ("halves", "interleaved")]
    order = torch.arange(8).view(2, 4).T.flatten()  # 0, 4, 1, 5, ...
    for layer in models[1].decoder.layers:
        attention = layer.self_attention
        heads = attention.qkv_proj.weight.unflatten(0, (3, 2, 8))
        heads[:2] = heads[:2, :, order].clone()
        for norm in (attention.q_norm.norm, attention.k_norm.norm):
            norm.weight.copy_(norm.weight[order].clone())
    ids, _ = sentences([9, 9])
    a, b = (whole(model, ids) for model in models)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"qk_norm": "rms"}, {"positions": "none"}, *GATES])
@torch.no_grad()
def test_decoding_step_by_step_equals_one_pass_over_the_whole_sequence(changes):
    model = block("rms", **changes)
    ids, _ = sentences([9, 9])
    state = model.start_decoding(2, max_length=9)
    found = torch.stack([model.decode_step(ids[:, t], state) for t in range(9)], dim=1)
    torch.testing.assert_close(found, whole(model, ids), rtol=0, atol=1e-12)


def test_a_translation_model_has_rotary_positions_only_in_self_attention():
    model = seq2seq(positions="rope", gated=True, bias=False)
    assert all(layer.self_attention.rotary for layer in model.decoder.layers)
    assert not hasattr(model.decoder.layers[0].cross_attention, "rotary")
    source, target = sentences([6, 3, 5], seed=1)[0], sentences([7] * 3, seed=2, first=BOS)[0]
    assert_close(stepped(model, source, target)[0], logits(model, source, target))


def test_every_sixth_layer_has_the_global_rotary_base_and_the_rest_the_local_one():
    rope = Rope(base=1e6, local_base=1e4)
    found = [rope.in_layer(layer, 4).frequencies[1].item() for layer in range(12)]
    assert found == pytest.approx(([1e-2] * 5 + [1e-3]) * 2)


def test_rotary_positions_are_refused_for_odd_head_widths_and_vision_transformers():
    with pytest.raises(ValueError, match=r"model\.positions=rope needs heads of an even width"):
        block(dim=18)
    overrides = ("task=digits", "model=vit", "model.positions=rope")
    with pytest.raises(ValueError, match=r"model\.positions=rope: .* a vision Transformer"):
        build_model(to_dict(compose(overrides)), Images())
