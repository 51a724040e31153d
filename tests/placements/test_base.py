"""Each placement computes its published equation, with the published initial values and sites."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import silu

from normlab.config.compose import compose
from normlab.norms.base import NoNorm
from normlab.norms.tokens import Tokens
from normlab.placements.base import XAVIER
from tests.models.small import (
    PLACEMENTS,
    assert_close,
    lm,
    placement,
    seq2seq,
)
from tests.placements.places import at, x_of

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


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["placement=rezero"], r"placement=rezero has no norms, but norm=ln .* set norm=none"),
        (
            ["placement=rezero", "norm=none", "norm@decoder_norm=bn"],
            r"norm@decoder_norm=bn asks for one; set norm@decoder_norm=none",
        ),
        (["placement=deepnorm", "norm=none"], r"placement=deepnorm .* norm=none .* set norm=ln"),
    ],
)
def test_an_incompatible_norm_and_placement_are_refused_in_one_line(overrides, said):
    with pytest.raises(ValueError, match=said) as refused:
        compose(overrides)
    assert "\n" not in str(refused.value)
