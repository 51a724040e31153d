"""The language model: causal in eval, and the same token by token as under teacher forcing."""

import pytest
import torch

from normlab.models.cache import CachedDecoding
from normlab.norms.base import Stream
from tests.models.small import GRID, PAD, assert_close, lm, sentences

TO_COME = ("in", "seqn", "gn_sample")  # norms that need the tokens to come


def whole(model, ids):
    return model.project(model(ids, Stream(ids != PAD)))


@pytest.mark.parametrize(("norm", "place"), GRID)
@torch.no_grad()
def test_token_by_token_is_teacher_forcing_where_the_norm_allows(norm, place):
    model = lm(norm, place)
    ids, _ = sentences([9, 9])
    state = model.start_decoding(2, max_length=9)
    steps = torch.stack([model.decode_step(ids[:, t], state) for t in range(9)], dim=1)
    expected = whole(model, ids)
    if norm in TO_COME:  # each step is that of its prefix
        assert not torch.allclose(steps, expected)
        expected = torch.stack([whole(model, ids[:, : t + 1])[:, -1] for t in range(9)], dim=1)
    else:
        assert isinstance(state, CachedDecoding)
    assert_close(steps, expected)


@torch.no_grad()
def test_by_batch_statistics_a_token_sees_the_batch():
    model = lm("bn", eval_stats="batch")
    ids, _ = sentences([9, 7])
    state = model.start_decoding(2, max_length=9)
    assert not isinstance(state, CachedDecoding)
    before, other = whole(model, ids), ids.clone()
    other[1, 3] = 5 if other[1, 3] != 5 else 6
    assert not torch.allclose(before[0], whole(model, other)[0])
