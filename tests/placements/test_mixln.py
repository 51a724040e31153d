"""Mix-LN: from pre-norm to post-norm by its share."""

import torch

from normlab.placements.post import PostResidual
from tests.models.small import DIM, assert_close, lm, norms, placement
from tests.placements.places import IDS, TOKENS, at, outputs


def same_weights(model, other):
    """Copy the parameters with the same names from another model into a model."""
    there = dict(other.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(there[name])


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
