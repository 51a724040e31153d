"""SiameseNorm: its two streams."""

import torch

from normlab.placements.base import Residual
from tests.models.small import seq2seq
from tests.placements.places import IDS, TOKENS


def test_siamese_with_zero_branches_keeps_the_embedding_in_only_one_of_its_streams():
    stack = seq2seq("ln", "siamese").decoder
    x = y = stack.embedding(IDS, TOKENS)
    streams = stack.opening(x, TOKENS)
    for residual in (module for module in stack.modules() if isinstance(module, Residual)):
        streams, x = residual(streams, TOKENS, torch.zeros_like), residual.x_norm(x, TOKENS)
    assert torch.equal(streams, torch.cat([x, y], -1))
