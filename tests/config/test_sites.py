"""Norms at the sites that rules and options choose, and unit-length embeddings."""

import math

import pytest
import torch

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.models.base import Text
from normlab.norms.base import Norm
from normlab.norms.rms import RMSNorm, UnitNorm
from normlab.placements.base import Norms
from normlab.placements.sandwich import SandwichResidual
from normlab.probes.sites import sites
from normlab.records.labels import norm_label
from normlab.records.record import fingerprint
from normlab.training.build import build_model
from tests.models.small import BOS, Words, assert_close, logits, norms, sentences, seq2seq

SMALL = ("model.dim=16", "model.ffn_dim=24", "model.num_heads=2", "model.max_positions=40")


def _config(*overrides):
    return to_dict(compose([*SMALL, *overrides]))


def _classes(monkeypatch, *overrides):
    """Return the class of the norm at each path for which a small model requests one."""
    asked, init = [], Norms.__init__

    def remembered(self, rules):
        init(self, rules)
        asked.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(Norms, "__init__", remembered)
        build_model(_config(*overrides), Words())
    return {path: type(norm).__name__ for path, norm in asked[0].places.items()}


def test_the_last_matching_rule_wins_and_unmatched_sites_keep_their_stacks_norm(
    monkeypatch,
):
    rules = "sites={*.self:bn,encoder.0.*:rms,*.1.ffn:none,decoder.0.cross.q:ln,*.inner:rms,"
    rules += "*.1.*.hidden:rms}"
    found = _classes(monkeypatch, "norm=ln", "norm@decoder_norm=in", rules)
    assert found["encoder.0.self"] == found["encoder.0.ffn"] == "RMSNorm"
    assert found["encoder.1.self"] == found["decoder.0.self"] == "BatchNorm"
    assert found["encoder.1.ffn"] == found["decoder.1.ffn"] == "NoNorm"
    assert found["encoder.final"] == "LayerNorm" and found["decoder.final"] == "InstanceNorm"
    assert found["decoder.0.cross.q"] == "LayerNorm" and found["decoder.1.cross.q"] == "NoneType"
    assert found["encoder.0.ffn.inner"] == "RMSNorm" and found["encoder.embedding"] == "NoNorm"
    assert (found["encoder.0.ffn.hidden"], found["encoder.1.ffn.hidden"]) == ("NoneType", "RMSNorm")


def test_a_norm_for_a_stack_that_the_model_lacks_is_refused():
    class Reads(Words):
        def __init__(self, causal):
            self.causal = causal

        def spec(self):
            return Text(9, 0, 1, self.causal)

    for causal, stack in ((True, "encoder"), (False, "decoder")):
        config = _config("model=bert_tiny", f"norm@{stack}_norm=bn")
        with pytest.raises(
            ValueError, match=rf"norm@{stack}_norm sets a norm that this model does not have"
        ):
            build_model(config, Reads(causal))


def test_a_rule_for_a_site_that_the_placement_lacks_is_refused():
    with pytest.raises(ValueError, match=r"encoder\.final matches no norm"):
        build_model(_config("placement=post", "sites={encoder.final:bn}"), Words())


@pytest.mark.parametrize("place", ["sandwich", "peri", "keel", "normformer"])
def test_a_rule_for_out_chooses_the_norms_after_the_branches(place):
    config = _config(f"placement={place}", "sites={*.out:rms}")
    model = build_model(config, Words())
    built = [module for module in model.modules() if isinstance(module, Norm)]
    assert [module for _, module in sites(model, ("norm",)).values()] == built
    ends = [module for module in built if isinstance(module, RMSNorm)]
    residuals = [m for m in model.modules() if isinstance(m, SandwichResidual)]
    assert {residual.out_norm for residual in residuals} <= set(ends)


def test_two_norms_at_one_path_are_refused():
    given = norms("ln")
    given.required("encoder.0.self", 8)
    with pytest.raises(ValueError, match=r"two norms have the path encoder\.0\.self"):
        given.required("encoder.0.self", 8)


def test_site_rules_appear_in_the_label_and_change_the_fingerprint():
    other = _config("norm=bn", "sites={*.self:ln,encoder.0.*:{norm:bn,momentum:0.5}}")
    assert norm_label(other["choices"]) == "bn+self_ln+encoder.0_bn"
    many = _config("sites={*.self:bn,*.cross:bn,*.ffn:bn,*.q:ln,*.k:ln,*.v:ln}")
    assert norm_label(many["choices"]) == "ln+self_bn+cross_bn+ffn_bn+q_ln+2_more"
    assert fingerprint(other) != fingerprint(_config("norm=bn"))
    assert other["sites"]["encoder.0.*"]["momentum"] == 0.5


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            "{*.memory:bn}",
            r"sites: \*\.memory matches no norm.*encoder\.\*\.self, .*decoder\.final",
        ),
        ("{*.self:nn}", r"sites: \*\.self: 'nn' is not an option of the group 'norm'"),
        ("{a-b:ln}", r"sites: 'a-b' is not a path"),
        ("{*.self:{norm:bn,momentum:7}}", r"sites\.\*\.self\.momentum=7 must be"),
        ("bn", r"sites='bn' is not a mapping of rules"),
    ],
)
def test_an_invalid_site_rule_is_refused_in_one_line(rule, said):
    with pytest.raises(ValueError, match=said) as refusal:
        build_model(_config(f"sites={rule}"), Words())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("kind", "scale"), [("l2", math.log2(90)), ("cosine", 10)])
def test_qk_norm_multiplies_cosines_by_a_scale_that_is_learned_only_with_l2(kind, scale):
    model = seq2seq("ln", "pre", qk_norm=kind, qk_length=10)
    attention = model.encoder.layers[0].self_attention
    query, key = attention.q_norm.norm, attention.k_norm.norm
    assert isinstance(query, UnitNorm) and isinstance(key, UnitNorm)
    learned = [*query.parameters(), *key.parameters()]
    assert [g.item() for g in learned] == ([pytest.approx(scale)] if kind == "l2" else [])
    x, tokens = torch.randn(2, 3, 16, dtype=torch.float64), sentences([3, 2])[1]
    q, k, _ = attention.project(x, tokens)
    by_hand = [
        torch.nn.functional.normalize(attention.split(part), dim=-1)
        for part in attention.qkv_proj(x).chunk(3, -1)[:2]
    ]
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    torch.testing.assert_close(scores, scale * by_hand[0] @ by_hand[1].mT)


def test_fixnorm_normalizes_the_tied_embedding_and_is_refused_without_tying():
    model = seq2seq("scale", "pre", fixnorm=True)
    source, _ = sentences([4, 3])
    target, _ = sentences([3, 3], first=BOS)
    before = logits(model, source, target)
    with torch.no_grad():
        model.output.weight.mul_(torch.linspace(0.5, 3, len(model.output.weight))[:, None])
    assert_close(logits(model, source, target), before)
    assert model.encoder.embedding.scale == 4
    with pytest.raises(ValueError, match=r"model\.fixnorm=true needs.*share_embeddings"):
        seq2seq(fixnorm=True, share_embeddings="none")


def test_center_weights_centers_the_rows_of_the_linear_layers_before_the_norm():
    overrides = ("norm=mabn", "norm.center_weights=true", "norm@ffn_inner_norm=mabn")
    layer = build_model(_config(*overrides), Words()).decoder.layers[0]
    last = [layer.self_attention.out_proj, layer.cross_attention.out_proj, layer.feed_forward.fc2]
    for linear in last:
        assert linear.rows.mean(1).abs().max() < 1e-6 < 1e-3 < linear.weight.mean(1).abs().max()
    assert not layer.feed_forward.fc1.centered
