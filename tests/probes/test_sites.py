"""Names of sites, layers and kinds of sub-layers."""

from functools import partial

from normlab.norms.base import Norm
from normlab.norms.batch import BatchNorm
from normlab.norms.make import make_norm
from normlab.placements.base import Residual
from normlab.probes.sites import layer, modules_by_site, sublayer_kinds
from tests.models.small import Words, architecture, norms, placement, seq2seq

LAYERS = {
    "encoder.layers.0.self_attention.qkv_proj.weight": "encoder.0",
    "decoder.layers.10.feed_forward.fc2.bias": "decoder.10",
    "encoder.embedding.tokens.weight": "encoder.embedding",
    "encoder.final_norm.weight": "encoder.final",
    "output.weight": "output",
}


def test_site_names_match_the_configs_paths_and_every_parameter_maps_to_a_layer():
    given = norms("ln", ("*.inner", partial(make_norm, "bn")), ("*.q", partial(make_norm, "rms")))
    model = architecture().build(Words().spec(), placement("post"), given)
    found = {path for path, norm in given.places.items() if norm is not None}
    assert found - set(modules_by_site(model, Norm)) == set() and "encoder.0.ffn.inner" in found
    assert {"decoder.1.cross", "encoder.0.ffn"} <= set(modules_by_site(model, Residual))
    assert all(m.path in repr(m) for m in modules_by_site(model, BatchNorm).values())
    assert {name: layer(name) for name in LAYERS} == LAYERS


def test_every_parameter_has_a_sublayer_kind_and_site_names_are_unique():
    model = seq2seq("bn", "post", share_embeddings="none")
    kinds = sublayer_kinds(model)
    assert kinds.keys() == dict(model.named_parameters()).keys()
    assert set(kinds.values()) == {"attention", "feed_forward", "norm", "embedding"}
    assert kinds["encoder.layers.0.self_residual.norm.weight"] == "norm"
    assert kinds["decoder.layers.0.cross_attention.kv_proj.weight"] == "attention"
    assert kinds["output.weight"] == "embedding"
    norms = [m for m in model.modules() if isinstance(m, type(model.encoder.final_norm))]
    assert len(modules_by_site(model, type(model.encoder.final_norm))) == len(norms)
