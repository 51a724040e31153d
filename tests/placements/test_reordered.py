"""The reordered placement, and a start as the identity."""

import pytest
import torch

from normlab.norms.tokens import Tokens
from normlab.placements.base import Place
from tests.models.blocks import block, double
from tests.models.small import (
    assert_close,
    norms,
    placement,
)


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
