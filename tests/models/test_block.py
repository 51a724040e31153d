"""The modern block: rotary positions, gated feed-forward layers, linear layers without biases."""

import inspect
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from normlab.config.compose import compose
from normlab.config.plain import to_dict
from normlab.config.registry import option_settings
from normlab.config.schema import NEWER_OF_MODELS
from normlab.models.attention import AttentionCore
from normlab.models.base import Image, Text
from normlab.models.folding import fold
from normlab.models.layers import FeedForward, Linear, initialize
from normlab.models.rotary import Rope, Rotary
from normlab.models.text import TextArchitecture
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Place
from normlab.probes.activations import describe_attention
from normlab.records.record import fingerprint
from normlab.training.build import build_model
from tests.models.small import (
    BOS,
    NORMS,
    PAD,
    SIZES,
    VOCAB,
    Words,
    assert_close,
    logits,
    norms,
    placement,
    sentences,
    seq2seq,
    unsettle,
)
from tests.models.test_decoding import stepped

BLOCK = {"positions": "rope", "gated": True, "activation": "silu", "bias": False, "init": "normal"}
AFFINE = [norm for norm in NORMS if "affine" in option_settings("norm", norm, "norm")]
double = partial(torch.randn, dtype=torch.float64)


class LM(Words):
    def spec(self):
        return Text(vocab=VOCAB, pad_id=PAD, longest=1, causal=True)


class Images(Words):
    def spec(self):
        return Image(8, 8, 1, 10)


def block(norm="ln", place="pre", *rules, causal=True, **changes):
    """Build a small float64 model of the modern block whose norms are far from the identity."""
    values = {"max_positions": 40, "num_layers": 2, "scale_embeddings": False, "tied": False}
    sizes = TextArchitecture(**{**SIZES, **values, **BLOCK, **changes})
    spec = Text(vocab=VOCAB, pad_id=PAD, longest=1, causal=causal)
    model = sizes.build(spec, placement(place), norms(norm, *rules))
    initialize(model, 1)
    unsettle(model, 1)
    return model.double().eval()


def config(*overrides):
    return to_dict(compose(["task=lm", *overrides]))


def whole(model, ids):
    return model.project(model(ids, Tokens(ids != PAD)))


# Positions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
def test_rotary_positions_keep_lengths_and_scores_depend_only_on_the_distance(pairs):
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
def test_rotary_pairs_halves_and_interleaved_differ_only_in_the_order_of_rows_and_gains():
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


GATES = [{"attention_gate": kind} for kind in ("headwise", "elementwise")]


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
    with pytest.raises(ValueError, match=r"model\.positions=rope: a vision Transformer"):
        build_model(to_dict(compose(overrides)), Images())


# Attention ----------------------------------------------------------------------------------------


@torch.no_grad()
def test_full_qk_norm_couples_heads_and_equals_the_per_head_norm_with_one_head():
    full, single = (block("ln", qk_norm=kind, num_heads=1) for kind in ("rms_full", "rms"))
    ids, _ = sentences([9, 9])
    assert_close(whole(full, ids), whole(single, ids))
    x, changed = double(1, 3, 16), {}
    for kind in ("rms_full", "rms"):
        attention = block("ln", qk_norm=kind, num_heads=4).decoder.layers[0].self_attention
        before, _, _ = attention.project(x, Tokens())
        attention.qkv_proj.weight[:4] *= 3  # the queries of the first head
        after, _, _ = attention.project(x, Tokens())
        changed[kind] = not torch.allclose(before[:, 1:], after[:, 1:])
    assert changed == {"rms_full": True, "rms": False}


def test_qk_eps_sets_the_eps_of_the_qk_norms():
    attention = block(qk_norm="rms_full", qk_eps=0.25).decoder.layers[0].self_attention
    assert attention.q_norm.norm.eps == attention.k_norm.norm.eps == 0.25


@torch.no_grad()
def test_caps_squash_attention_scores_and_logits_with_tanh():
    ids, _ = sentences([9, 9])
    plain, capped = block(), block(logit_cap=0.1)
    assert_close(whole(capped, ids), 0.1 * torch.tanh(whole(plain, ids) / 0.1))
    query, key, value = double(2, 1, 5, 4) * 9, double(2, 1, 5, 4), double(2, 1, 5, 4)
    scores = 3 * torch.tanh(query @ key.mT / 2 / 3)
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    expected = scores.masked_fill(~visible, -torch.inf).softmax(-1) @ value
    assert_close(AttentionCore(0.0, cap=3.0)(query, key, value, visible), expected)
    real = torch.ones(2, 5, dtype=torch.bool)
    found = describe_attention(query, key, visible, real, threshold=0.9, cap=3.0)
    assert_close(found["largest"], scores.tril().abs().amax())


def set_gates(model, bias):
    """Give every gate the value sigmoid(bias)."""
    for name, parameter in model.named_parameters():
        if ".gate." in name:
            parameter.fill_(bias if name.endswith("bias") else 0.0)


@torch.no_grad()
@pytest.mark.parametrize("changes", GATES)
def test_open_attention_gates_change_nothing_and_closed_ones_hide_the_source(changes):
    plain, model = seq2seq(), seq2seq(**changes)
    model.load_state_dict(plain.state_dict(), strict=False)
    source, other = (sentences([6, 3, 5], seed=seed)[0] for seed in (1, 3))
    target = sentences([7] * 3, seed=2, first=BOS)[0]
    set_gates(model, 50.0)
    assert_close(logits(model, source, target), logits(plain, source, target))
    assert not torch.allclose(logits(model, other, target), logits(model, source, target))
    set_gates(model, -50.0)
    assert_close(logits(model, other, target), logits(model, source, target))


@torch.no_grad()
@pytest.mark.parametrize("changes", GATES)
def test_decoding_and_folding_a_gated_model_do_not_change_its_logits(changes):
    model = seq2seq("bn", "pre", **changes)
    source, target = sentences([6, 3, 5], seed=1)[0], sentences([7] * 3, seed=2, first=BOS)[0]
    whole_pass = logits(model, source, target)
    assert_close(stepped(model, source, target)[0], whole_pass)
    assert {"decoder.layers.0.cross_residual.norm", "encoder.layers.1.self_residual.norm"} <= set(
        fold(model)
    )
    assert_close(logits(model, source, target), whole_pass)


# Placements ---------------------------------------------------------------------------------------


@torch.no_grad()
def test_reordered_adds_the_normalized_branch_and_zero_start_makes_it_the_identity():
    x, tokens = double(2, 3, 16), Tokens()
    residual = block("rms", "reordered").decoder.layers[0].ffn_residual
    assert_close(residual(x, tokens, torch.sin), x + residual.norm(x.sin(), tokens))
    for norm, values in (("rms", {}), ("rms", {"one_plus": True}), ("repbn", {}), ("prepbn", {})):
        place = placement("reordered", zero_start=True)
        given = Place(stack="decoder", layer=0, layers=1, sublayer="ffn")
        started = place.residual(norms(norm, **values), 16, given).double()
        assert torch.equal(started(x, tokens, torch.sin), x)
    for norm in ("none", "scale"):
        with pytest.raises(ValueError, match=r"placement\.zero_start=true: .* learns no gain"):
            place.residual(norms(norm), 16, given)


# The feed-forward layer, biases and initial weights -----------------------------------------------


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
    with pytest.raises(ValueError, match=r"model\.fixnorm=true needs .* model\.tied=true"):
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


# Norms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "norm", [n for n in NORMS if "affine" in option_settings("norm", n, "norm")]
)
def test_every_affine_norm_can_have_a_gain_without_a_bias(norm):
    full, scale = (make_norm(norm, 16, affine=affine) for affine in (True, "scale"))
    names = {name for name, _ in full.named_parameters() if "bias" not in name}
    assert {name for name, _ in scale.named_parameters()} == names and "weight" in names
    x = torch.randn(4, 3, 16)
    assert torch.equal(full(x), scale(x))


def test_rms_norm_with_one_plus_equals_rms_norm_with_the_gain_one_plus_w():
    plain, plus = make_norm("rms", 6), make_norm("rms", 6, one_plus=True)
    assert not plus.weight.any()
    x = torch.randn(2, 3, 6)
    for eps_inside in (True, False):  # the kernel, and the formula
        plain.eps_inside = plus.eps_inside = eps_inside
        with torch.no_grad():
            plain.weight.uniform_(0.5, 1.5)
            plus.weight.copy_(plain.weight - 1)
        torch.testing.assert_close(plus(x), plain(x))


# Configs ------------------------------------------------------------------------------------------


def test_a_config_contains_newer_keys_only_if_they_differ_from_their_defaults():
    typed = ("model.gated=false", "model.bias=true", "model.rope.base=10000", "model.init=xavier")
    plain = config()
    assert config(*typed) == plain and "gated" not in plain["model"]
    assert config("norm=rms", "norm.one_plus=false")["norm"].keys() == {
        *("option", "eps", "affine", "eps_inside")
    }
    changed = config("model.positions=rope", "model.rope.base=5e5", "model.gated=true")
    assert changed["model"]["rope"] == {"base": 5e5} and changed["model"]["gated"]
    assert fingerprint(changed) != fingerprint(plain)
    assert isinstance(build_model(changed, LM()).decoder.layers[0].self_attention.rotary, Rotary)


def test_the_defaults_of_newer_keys_match_those_in_the_classes():
    parameters = inspect.signature(TextArchitecture).parameters
    defaults = {f"model.{name}": each.default for name, each in parameters.items()}
    defaults |= {f"model.rope.{name}": getattr(Rope(), name) for name in Rope.__struct_fields__}
    assert {key: defaults[key] for key in NEWER_OF_MODELS} == NEWER_OF_MODELS


def test_a_recipe_sets_only_the_values_of_its_own_options_and_typed_values_win():
    own = config("recipe=gemma3")
    assert own["norm"]["one_plus"] and own["placement"]["depth_scaled"] is False
    typed = config("recipe=gemma3", "norm=rms", "norm.eps=1e-3", "optim.weight_decay=0")
    assert (typed["norm"]["eps"], typed["optim"]["weight_decay"]) == (1e-3, 0)
    others = config(
        "recipe=gemma3", "norm=none", "placement=post", "optim=sgd", "schedule=constant"
    )
    plain = config("norm=none", "placement=post", "optim=sgd", "schedule=constant")
    keys = ("norm", "placement", "optim", "schedule")
    assert [others[key] for key in keys] == [plain[key] for key in keys]
    assert others["model"] == own["model"] and others["clip_grad"] == 1
    assert config("norm=ada")["norm"]["scale"] == 1  # a value, although there is a norm=scale


def test_a_key_that_the_model_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"model\.gated does not exist; choose from dropout, "):
        build_model(config("model=gru", "model.gated=true"), LM())
    with pytest.raises(ValueError, match=r"model\.rope=.*unknown field `bass`"):
        build_model(config("+model.rope.bass=3"), LM())
