"""Each placement computes its published equation, with the published initial values."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import silu

from normlab.config.compose import compose
from normlab.models.attention import HeadNorm
from normlab.norms.layer import NoNorm
from normlab.norms.tokens import Tokens
from normlab.placements.admin import AdminResidual, profile
from normlab.placements.base import XAVIER, Place, Residual
from normlab.placements.post import PostResidual
from normlab.placements.pre import PreResidual
from tests.models.small import (
    DIM,
    PLACEMENTS,
    assert_close,
    lm,
    norms,
    placement,
    sentences,
    seq2seq,
)

IDS, TOKENS = sentences([6, 4, 5], seed=1)


def at(stack, layers, other=0, *, layer=0, sublayer="self"):
    return Place(stack=stack, layer=layer, layers=layers, other_layers=other, sublayer=sublayer)


def outputs(model):
    return model(IDS, TOKENS)[TOKENS.valid]


def same_weights(model, other):
    """Copy the parameters with the same names from another model into a model."""
    there = dict(other.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(there[name])


def x_of(width=DIM, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 6, width, generator=generator, dtype=torch.double)


# y of one layer from its input x, its attention a, its feed-forward layer f and its residuals r, q
EQUATIONS = {
    "pre": lambda x, a, f, r, q: (h := x + a(r.norm(x))) + f(q.norm(h)),
    "post": lambda x, a, f, r, q: q.norm((h := r.norm(x + a(x))) + f(h)),
    "sandwich": lambda x, a, f, r, q: (
        (h := x + r.out_norm(a(r.norm(x)))) + q.out_norm(f(q.norm(h)))
    ),
    "deepnorm": lambda x, a, f, r, q: q.norm(8**0.25 * (h := r.norm(8**0.25 * x + a(x))) + f(h)),
    "admin": lambda x, a, f, r, q: q.norm(q.omega * (h := r.norm(r.omega * x + a(x))) + f(h)),
    "rezero": lambda x, a, f, r, q: (h := x + r.gain * a(x)) + r.gain * f(h),
    "layerscale": lambda x, a, f, r, q: (h := x + r.gain * a(r.norm(x))) + q.gain * f(q.norm(h)),
    "lnscaling": lambda x, a, f, r, q: (
        (h := x + a(r.norm(x) / math.sqrt(4))) + f(q.norm(h) / math.sqrt(4))
    ),
    "subln": lambda x, a, f, r, q: (h := x + a(r.norm(x))) + f(q.norm(h)),
    "normformer": lambda x, a, f, r, q: (h := x + r.out_norm(a(r.norm(x)))) + f(q.norm(h)),
    "b2t": lambda x, a, f, r, q: q.norm(x + (h := r.norm(x + a(x))) + f(h)),
    "hybrid": lambda x, a, f, r, q: (h := q.norm(x + a(x))) + f(h),
    "gpas": lambda x, a, f, r, q: (
        (1 - silu(r.gate)) * ((h := (1 - silu(r.gate)) * (x + a(r.norm(x)))) + f(q.norm(h)))
    ),
    "keel": lambda x, a, f, r, q: q.out_norm(
        8 * (h := r.out_norm(8 * x + a(r.norm(x)))) + f(q.norm(h))
    ),
}
EQUATIONS["peri"] = EQUATIONS["sandwich"]
EQUATIONS["mixln"] = EQUATIONS["pre"]


@pytest.mark.parametrize("place", EQUATIONS)
def test_the_last_of_four_layers_computes_the_published_equation(place):
    layer = lm("none" if place == "rezero" else "ln", place, layers=4).decoder.layers[3]
    x, every = x_of(), Tokens(torch.ones(3, 6, dtype=torch.bool))

    def part(residual):
        """Return the residual's parts, with its norms as functions of x alone."""
        named = {**dict(residual.named_children()), **dict(residual.named_parameters())}
        return SimpleNamespace(
            **{
                name: (lambda x, norm=value: norm(x, every)) if "norm" in name else value
                for name, value in named.items()
            }
        )

    expected = EQUATIONS[place](
        x,
        lambda h: layer.self_attention(h, every),
        lambda h: layer.feed_forward(h, every),
        part(layer.self_residual),
        part(layer.ffn_residual),
    )
    assert_close(layer(x, every), expected)


def test_resi_dual_adds_the_normalized_sum_of_all_branches_to_a_post_norm_stream():
    stack = lm("ln", "resi_dual", layers=1).decoder
    (layer,) = stack.layers
    x0 = stack.embedding(IDS, TOKENS)
    branch = layer.self_attention(x0, TOKENS)
    x1 = layer.self_residual.norm(x0 + branch, TOKENS)
    second = layer.feed_forward(x1, TOKENS)
    x2 = layer.ffn_residual.norm(x1 + second, TOKENS)
    expected = x2 + stack.final_norm.norm(x0 + branch + second, TOKENS)
    assert_close(stack(IDS, TOKENS), expected)


def test_gpas_starts_bitwise_equal_to_pre_norm_with_one_gate_per_layer():
    pre, gpas = (lm("ln", place, fresh=True) for place in ("pre", "gpas"))
    assert torch.equal(outputs(gpas), outputs(pre))
    apart = lm("ln", "gpas", fresh=True, values={"shared": False})
    for model, count in ((gpas, 2), (apart, 4)):
        assert sum(name.endswith("gate") for name, _ in model.named_parameters()) == count


def test_gpas_scales_the_residual_stream_but_not_its_gradient():
    """Its gradient in x is therefore not the derivative of its value; the one in the gate is."""
    layer = lm("ln", "gpas").decoder.layers[0]
    residual, x, pull = layer.self_residual, x_of(), x_of(seed=1)

    def y(x, gate=residual.gate):
        residual._parameters["gate"] = gate
        return residual(x, TOKENS, lambda h: layer.self_attention(h, TOKENS))

    gate, real = torch.tensor(0.7, dtype=torch.double), TOKENS.valid[..., None]
    inputs = [x.requires_grad_(), gate.requires_grad_()]
    h = y(x, torch.zeros(()))  # pre-norm
    (expected,) = torch.autograd.grad((h * pull * real).sum(), x)
    dx, dgate = torch.autograd.grad((y(x, gate) * pull * real).sum(), inputs)
    assert_close(dx, expected)
    s = torch.sigmoid(gate)
    assert_close(dgate, -s * (1 + gate * (1 - s)) * (h * pull)[TOKENS.valid].sum())
    fixed = x.detach()
    assert gradcheck(lambda gate: y(fixed, gate) * real, gate, fast_mode=True)
    assert not gradcheck(lambda x: y(x, gate) * real, x, fast_mode=True, raise_exception=False)


def test_keel_scales_by_the_number_of_residuals_and_starts_with_a_pre_norm_one():
    model = seq2seq("ln", "keel")
    for stack, connections in ((model.encoder, 4), (model.decoder, 6)):
        first, *others = (m for m in stack.modules() if isinstance(m, Residual))
        assert type(first) is PreResidual and isinstance(stack.final_norm, NoNorm)
        assert [residual.factor for residual in others] == [connections] * (connections - 1)


def test_siamese_with_zero_branches_keeps_the_embedding_in_only_one_of_its_streams():
    stack = seq2seq("ln", "siamese").decoder
    x = y = stack.embedding(IDS, TOKENS)
    streams = stack.opening(x, TOKENS)
    for residual in (module for module in stack.modules() if isinstance(module, Residual)):
        streams, x = residual(streams, TOKENS, torch.zeros_like), residual.x_norm(x, TOKENS)
    assert torch.equal(streams, torch.cat([x, y], -1))


@pytest.mark.parametrize(
    ("stack", "layers", "other", "alpha", "beta"),
    [
        ("decoder", 12, 0, 24**0.25, 96**-0.25),
        ("encoder", 6, 6, 1.418, 0.497),
        ("encoder", 18, 6, 0.81 * (18**4 * 6) ** 0.0625, 0.87 * (18**4 * 6) ** -0.0625),
        ("decoder", 18, 6, 54**0.25, 216**-0.25),
    ],
)
def test_deepnorm_uses_alpha_and_beta_from_the_papers_table(stack, layers, other, alpha, beta):
    """The constants for 6 + 6 layers and for 12 were computed independently."""
    built, place = placement("deepnorm"), at(stack, layers, other)
    assert built.residual(norms(), DIM, place).factor == pytest.approx(alpha, rel=1e-3)
    for role in XAVIER:
        expected = 1 if role in ("q", "k") else beta
        factor = built.weight_factor(role, place)
        assert factor == pytest.approx(expected, rel=1e-3) and built.xavier[role] == 1


def test_subln_uses_the_weight_factors_from_the_papers_table():
    built = placement("subln")

    def factor(role, *place, **more):
        return built.weight_factor(role, at(*place, **more))

    assert factor("fc1", "encoder", 12) == factor("v", "decoder", 12) == math.log(24) ** 0.5
    assert factor("out", "encoder", 6, 4) == (math.log(12) * math.log(12) / 3) ** 0.5
    assert factor("fc2", "decoder", 4, 6) == math.log(12) ** 0.5
    assert factor("v", "decoder", 4, 6, sublayer="cross") == factor("q", "encoder", 6, 4) == 1


@pytest.mark.parametrize(
    ("place", "role", "expected"),
    [
        *(("b2t", role, 6**-0.5) for role in XAVIER),
        *((place, role, 18**-0.5) for place in ("sandwich", "hybrid") for role in ("out", "fc2")),
        ("hybrid", "v", 1),
        ("peri", "fc2", 1),
    ],
)
def test_initial_weights_are_scaled_by_depth_where_the_paper_says_so(place, role, expected):
    wiring = placement(place)
    assert wiring.weight_factor(role, at("decoder", 6, 6)) == pytest.approx(expected)
    assert wiring.xavier == XAVIER


def test_rezero_starts_as_the_identity_with_one_gain_per_layer():
    model = lm("none", "rezero", fresh=True)
    assert_close(outputs(model), model.decoder.embedding(IDS, TOKENS)[TOKENS.valid])
    assert [name for name, _ in model.named_parameters() if name.endswith("gain")] == [
        f"decoder.layers.{layer}.self_residual.gain" for layer in range(2)
    ]
    apart = lm("none", "rezero", fresh=True, values={"shared": False})
    assert sum(name.endswith("gain") for name, _ in apart.named_parameters()) == 4


@torch.no_grad()
def test_normformers_head_gains_scale_heads_before_the_output_projection():
    layer = lm("ln", "normformer", values={"head_gains": "mix"}).decoder.layers[1]
    x, every, attention = x_of(), Tokens(torch.ones(3, 6, dtype=torch.bool)), layer.self_attention
    gains = torch.tensor([0.5, 2.0], dtype=torch.double)
    attention.mix_norm.gain.copy_(gains)
    y = attention(x, every)
    attention.mix_norm.gain.fill_(1)
    attention.out_proj.weight.mul_(gains.repeat_interleave(DIM // 2))
    assert_close(attention(x, every), y)


def test_mixln_equals_pre_norm_with_share_0_and_post_norm_with_share_1():
    pre, post = lm("ln", "pre", layers=4), lm("ln", "post", layers=4)
    none, all_ = (lm("ln", "mixln", layers=4, values={"share": share}) for share in (0.0, 1.0))
    same_weights(none, pre)
    assert_close(outputs(none), outputs(pre))
    same_weights(post, all_)
    assert_close(outputs(all_), all_.decoder.final_norm(post(IDS, TOKENS), TOKENS)[TOKENS.valid])
    for layers, share in ((2, 1), (12, 3), (24, 6)):
        places = [at("decoder", layers, layer=layer) for layer in range(layers)]
        built = [placement("mixln").residual(norms(), DIM, place) for place in places]
        assert sum(isinstance(residual, PostResidual) for residual in built) == share


def test_hybridnorm_with_star_has_a_pre_norm_first_layer():
    first, second = lm("rms", "hybrid", values={"star": True}).decoder.layers
    pre = type(lm("rms", "pre").decoder.layers[0].self_residual)
    assert type(first.self_residual) is type(first.ffn_residual) is pre
    assert pre not in (type(second.self_residual), type(second.ffn_residual))
    assert all(isinstance(layer.self_attention.v_norm, HeadNorm) for layer in (first, second))


def test_inner_norms_and_opening_norms_are_exactly_where_the_papers_put_them():
    """Inner norms are in the heads, on their mix, on the output and after the activation."""
    inner = ("attention.q_norm", ".v_norm", ".mix_norm", "attention.out_norm", ".hidden_norm")
    sites = {
        place: {
            name.removeprefix("decoder.layers.1.")
            for name, _ in seq2seq("ln", place).named_modules()
            if name.startswith("decoder.layers.1.") and name.endswith(inner)
        }
        for place in PLACEMENTS
    }
    found = {place: names for place, names in sites.items() if names}
    assert found == {
        "subln": {"self_attention.mix_norm", "feed_forward.hidden_norm"},
        "normformer": {"self_attention.out_norm", "feed_forward.hidden_norm"},
        "hybrid": {
            f"{kind}_attention.{site}_norm" for kind in ("self", "cross") for site in ("q", "v")
        },
    }
    opened = {p for p in PLACEMENTS if not isinstance(seq2seq("ln", p).encoder.opening, NoNorm)}
    assert opened == {"peri", "resi_dual", "siamese"}


def test_admin_sets_omega_from_the_variances_of_the_preceding_branches():
    model = seq2seq("ln", "admin", dropout=0.3).train()
    stacks = [model.encoder, model.decoder]
    seen = []

    def look(_, arguments, added):
        seen.append((inputs[-1], added))

    inputs, hooks = [], []
    for module in model.modules():
        if isinstance(module, AdminResidual):
            hooks.append(module.register_forward_pre_hook(lambda _, args: inputs.append(args)))
            hooks.append(module.dropout.register_forward_hook(look))
    target, tokens = sentences([5, 3, 6], seed=2)
    profile(model, lambda: model(IDS, TOKENS, target, tokens), seed=3)
    found = [[m.omega for m in s.modules() if isinstance(m, AdminResidual)] for s in stacks]
    assert [len(omegas) for omegas in found] == [2 * 2, 2 * 3]

    def variance(x, tokens):
        return x[tokens.valid].var(correction=0)

    for omegas, start in zip(found, (0, 4), strict=True):
        expected = torch.ones(())
        for omega, ((x, of_x, _), added) in zip(omegas, seen[start:], strict=False):
            assert_close(omega, expected.to(omega).expand(DIM))
            expected = (expected**2 * variance(x, of_x) + variance(added, of_x)).sqrt()
    assert all(omega[0] > 1 for omegas in found for omega in omegas[1:])


def test_admins_profiling_pass_changes_only_omega_and_is_reproducible_by_its_seed():
    def omegas(seed):
        model = seq2seq("bn", "admin", dropout=0.3).train()
        before = {name: table.clone() for name, table in model.named_buffers()}
        state = torch.get_rng_state()
        profile(model, lambda: model(IDS, TOKENS, IDS, TOKENS), seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        assert all(module.training for module in model.modules())
        assert all(torch.equal(table, before[name]) for name, table in model.named_buffers())
        assert not any(module._forward_hooks for module in model.modules())
        return torch.stack([p for name, p in model.named_parameters() if name.endswith("omega")])

    assert torch.equal(omegas(1), omegas(1))
    assert not torch.equal(omegas(1), omegas(2))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["placement=rezero"], r"placement=rezero has no norms, but norm=ln .* give norm=none"),
        (
            ["placement=rezero", "norm=none", "norm@decoder_norm=bn"],
            r"norm@decoder_norm=bn asks for one: give norm@decoder_norm=none",
        ),
        (["placement=deepnorm", "norm=none"], r"placement=deepnorm .* norm=none .* give norm=ln"),
    ],
)
def test_an_incompatible_norm_and_placement_are_refused_in_one_line(overrides, said):
    with pytest.raises(ValueError, match=said) as refused:
        compose(overrides)
    assert "\n" not in str(refused.value)
