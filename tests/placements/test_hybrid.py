"""HybridNorm with a pre-norm first layer."""

from normlab.models.attention import HeadNorm
from tests.models.small import lm


def test_hybridnorm_with_star_has_a_pre_norm_first_layer():
    first, second = lm("rms", "hybrid", values={"star": True}).decoder.layers
    pre = type(lm("rms", "pre").decoder.layers[0].self_residual)
    assert type(first.self_residual) is type(first.ffn_residual) is pre
    assert pre not in (type(second.self_residual), type(second.ffn_residual))
    assert all(isinstance(layer.self_attention.v_norm, HeadNorm) for layer in (first, second))
