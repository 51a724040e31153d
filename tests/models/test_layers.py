"""Feed-forward layers, biases, output layers and initial weights."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from normlab.models.base import Text
from normlab.models.folding import fold
from normlab.models.layers import FeedForward, Linear
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from normlab.training.build import build_model
from tests.models.blocks import LM, Images, block, config, double, whole
from tests.models.small import PAD, VOCAB, Words, assert_close, sentences


def test_the_two_halves_of_fc1_are_the_gate_and_the_value():
    model = block("bn", "pre", ("*.inner", partial(make_norm, "ln")), num_layers=1)
    layer = model.decoder.layers[0].feed_forward
    x, tokens = double(2, 3, 16), Tokens()
    gate, value = layer.fc1(x).chunk(2, dim=-1)
    hidden = F.silu(layer.inner_norm(gate, tokens)) * value
    assert_close(layer(x, tokens), layer.fc2(hidden))
    with torch.no_grad():
        layer.fc1.weight.copy_(layer.fc1.weight.roll(24, 0))
    assert not torch.allclose(layer(x, tokens), layer.fc2(hidden))


def test_a_gated_layer_has_about_as_many_parameters_as_a_plain_one():
    def count(gated):
        model = block(dim=96, ffn_dim=None, gated=gated)
        layers = [m for m in model.modules() if isinstance(m, FeedForward)]
        return sum(p.numel() for layer in layers for p in layer.parameters())

    assert count(True) == pytest.approx(count(False), rel=0.01)
    layer = build_model(config("model=llama"), LM()).decoder.layers[0]
    assert layer.feed_forward.fc2.in_features == 344


def test_linear_layers_have_no_biases_until_folding_creates_them():
    rules = ("*.inner", partial(make_norm, "bn"))
    model = block("bn", "pre", rules)
    assert all(m.bias is None for m in model.modules() if isinstance(m, Linear))
    ids, _ = sentences([9, 9])
    expected = whole(model, ids)
    assert len(fold(model)) == 2 * 3 + 1  # also the final norm, into an untied output layer
    assert_close(whole(model, ids), expected)


@pytest.mark.parametrize("causal", [True, False])
def test_an_untied_output_layer_adds_one_matrix(causal):
    def names(tied):
        return dict(block(tied=tied, causal=causal).named_parameters()).keys()

    assert names(False) - names(True) == {"output.weight"} and names(True) < names(False)
    with pytest.raises(ValueError, match=r"model\.fixnorm=true needs model\.tied=true"):
        block(fixnorm=True)


def test_normal_initial_weights_are_scaled_by_the_placements_factor():
    sizes = {"dim": 128, "ffn_dim": 256, "num_layers": 8, "positions": "learned"}
    model = block("ln", "sandwich", **sizes)
    layer = model.decoder.layers[0]
    found = [layer.self_attention.qkv_proj, layer.feed_forward.fc1, layer.feed_forward.fc2]
    embedding = model.decoder.embedding
    weights = [*(part.weight for part in found), embedding.positions.weight, model.output.weight]
    expected = [0.02, 0.02, 0.02 / 4, 0.01, 0.02]  # the depth factor is 1 / sqrt(2 * 8)
    assert [w.std().item() for w in weights] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("model", ["bert_tiny", "vit"])
def test_normal_initialization_covers_all_embeddings_and_heads(model):
    class Pairs(Words):
        def spec(self):
            return Text(vocab=VOCAB, pad_id=PAD, longest=1, causal=False)

    sizes = ["model.dim=256", "model.init=normal", "model.positions=learned"]
    more = ["model.pool=class"] if model == "vit" else []
    built = build_model(config(f"model={model}", *sizes, *more), Images() if more else Pairs())
    matrices = {name: p for name, p in built.named_parameters() if p.dim() > 1}
    ratios = {n: p.std().item() / (0.01 if "positions" in n else 0.02) for n, p in matrices.items()}
    assert {n: ratio for n, ratio in ratios.items() if not 0.85 < ratio < 1.15} == {}


def test_deepnorm_scales_normal_initial_weights_by_beta_except_for_queries_and_keys():
    model = block("ln", "deepnorm", dim=128, ffn_dim=256, num_layers=8)
    layer = model.decoder.layers[0]
    q, k, v = layer.self_attention.qkv_proj.weight.chunk(3)
    beta = (8 * 8) ** -0.25
    weights = [q, k, v, layer.feed_forward.fc2.weight]
    expected = [0.02, 0.02, 0.02 * beta, 0.02 * beta]
    assert [w.std().item() for w in weights] == pytest.approx(expected, rel=0.05)


def test_the_initial_weights_of_a_block_are_the_same_with_every_norm():
    def weights(norm, seed):
        model = build_model(
            config("model=llama", "model.dim=16", f"norm={norm}", f"seed={seed}"), LM()
        )
        kept = {id(p) for m in model.modules() if isinstance(m, Norm) for p in m.parameters()}
        return {n: p.tolist() for n, p in model.named_parameters() if id(p) not in kept}

    for seed in (1, 2):
        first = weights("ln", seed)
        assert all(weights(norm, seed) == first for norm in ("rms", "dyt", "bn", "none"))
