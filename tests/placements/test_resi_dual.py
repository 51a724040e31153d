"""ResiDual's two streams."""

from tests.models.small import assert_close, lm
from tests.placements.places import IDS, TOKENS


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
