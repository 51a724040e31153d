"""Padding around one batch, for a norm that pools each token and for one that pools the batch."""

import pytest
import torch

from normlab.inspection.norm.norm_calls import normal
from normlab.inspection.norm.padding_effect import padding_moves, with_padding
from normlab.norms.make import make_norm

VALID = torch.tensor([[True, True, True], [True, False, False]])


@pytest.mark.parametrize(
    ("name", "values", "moves"),
    [
        ("ln", {}, False),
        ("bn", {"padding": "exclude"}, False),
        ("bn", {"padding": "include"}, True),
    ],
)
def test_padding_changes_real_tokens_only_if_it_is_included(name, values, moves):
    norm = make_norm(name, 4, **values).double().train()
    assert padding_moves(norm, normal(2, 3, 4, seed=1), VALID) == moves


def test_statistics_and_the_gradient_at_padding_show_that_padding_is_included():
    x = normal(2, 3, 4, seed=1)
    norms = [make_norm("bn", 4, padding=how).double().train() for how in ("exclude", "include")]
    left_out, counted = (with_padding(norm, x, VALID, columns=2, rows=1) for norm in norms)
    assert left_out.outputs.shape == left_out.gradients.shape == (4, 4)
    assert not left_out.leaked.any() and counted.leaked.any()
    mean = x[VALID].mean(0)  # the running mean is a tenth of the batch's
    torch.testing.assert_close(left_out.statistics[1:5], mean / 10)
    torch.testing.assert_close(counted.statistics[1:5], mean / 10 * 4 / 15)  # of 3 x 5 cells
