"""Batches in parts, computed with torch's norms."""

import pytest
from torch import nn

from normlab.claim_checks import (
    compute,
)
from normlab.claim_checks.inputs import draw_normal, draw_tokens
from tests.claim_checks.by_hand import numbers


def test_gradients_over_parts_of_a_batch_match_torch_norms():
    x, target = draw_tokens(16, 12).flatten(0, 1), draw_tokens(16, 12, seed=3).flatten(0, 1)
    start = draw_normal(64, 64) / 8
    moved_by_question = {
        piece.question: piece.numbers["moved"] for piece in compute("batch.gradients")
    }
    for name, norm in (("bn", nn.BatchNorm1d(64)), ("ln", nn.LayerNorm(64))):
        for parts in (2, 4):
            weights = [start.clone().requires_grad_() for _ in range(2)]
            for weight, number in zip(weights, (1, parts), strict=True):
                for tokens, wanted in zip(x.chunk(number), target.chunk(number), strict=True):
                    (norm.double()(tokens @ weight) * wanted).sum().backward()
            whole, divided = (weight.grad for weight in weights)
            share = float((divided - whole).norm() / whole.norm())
            how = "two processes" if parts == 2 else "four steps"
            (moved,) = (
                v for key, v in moved_by_question.items() if key.startswith(name) and how in key
            )
            assert moved == pytest.approx(share, abs=1e-6)


def test_the_order_of_samples_does_not_matter():
    assert numbers("batch.order")[1] == [True, True]
