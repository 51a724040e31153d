"""Derivatives with respect to later positions and other sentences."""

import math

import pytest
import torch

from normlab.inspection.model.leak import derivatives, leak
from normlab.inspection.model.recorded_pass import RecordedCall, RecordedPass
from normlab.norms.tokens import Tokens
from tests.inspection.tiny_models import trained


def test_derivatives_match_hand_calculations():
    # y at sentence 0, position 0 is e_0 + 2 e_later + 3 e_other + 4 f_other, f another stream.
    e, f = (torch.randn(2, 2, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    last = torch.zeros(2, 2, 5, dtype=torch.float64)
    last = last + (e[0, 0] + 2 * e[0, 1] + 3 * e[1, 0] + 4 * f[1, 1] + 9 * f[0, 1])
    tokens = Tokens(torch.ones(2, 2, dtype=torch.bool))
    seen = RecordedPass()
    seen.calls["stack"] = {"one": [RecordedCall((e, tokens), last)]}
    seen.entered = {"one": (e, tokens), "two": (f, tokens)}
    measured = derivatives("one", seen, seed=3)
    assert measured.later == pytest.approx(2)
    assert measured.others == pytest.approx(math.hypot(3, 4))
    projection = torch.randn(5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert measured.own_token == pytest.approx(float(projection.norm()))


def test_a_batch_norm_in_the_encoder_or_on_the_embedding_leaks_into_the_decoder(tmp_path):
    measured = leak(trained(tmp_path, "norm=bn", "norm@decoder_norm=ln")).values["training"]
    assert measured["decoder"]["others"] > 1e-6 and measured["decoder"]["later"] == 0
    measured = leak(trained(tmp_path, "norm=ln", "norm@embedding_norm=bn")).values
    assert measured["training"]["decoder"]["later"] > 1e-6
    assert measured["eval"]["decoder"]["later"] == 0
