"""Padding in the articles' batches, computed in numpy."""

import numpy as np
import pytest

from normlab.claim_checks import (
    padding,
)
from tests.claim_checks.by_hand import batch_norm, numbers, text_of


def test_padding_changes_a_batch_of_three_as_computed_cell_by_cell():
    x, real = (each.numpy() for each in padding.padded_batch(1, 3, 5))
    assert real.sum() == 9 and real[2].all()
    counted, left_out = batch_norm(x.reshape(15, -1)), batch_norm(x[real])
    moved = counted[real.reshape(-1)] - left_out
    share = np.linalg.norm(moved) / np.linalg.norm(left_out)
    values, holds = numbers("padding.batch_of_three")
    assert f"changes by {100 * share:.1f} %" in text_of("padding.batch_of_three")
    assert (values["cells"], values["padding"]) == (15, 6)
    assert holds == [True, True, True, False, True]


def test_norms_per_position_ignore_positions_that_are_all_padding():
    x, real = (each.numpy() for each in padding.padded_batch(3, 2))
    assert not real[:, 3].any() and real[:, 2].tolist() == [True, False]
    # C alone at its position becomes 0; next to a zero it becomes 1 or -1 in each feature.
    column = batch_norm(x[:, 2])
    assert np.median(np.abs(column)) == pytest.approx(1, abs=0.01)
    values, holds = numbers("padding.position_3")
    assert values["moved"] == pytest.approx(np.sqrt(np.mean(column[0] ** 2)))
    assert holds == [True, False]
    assert "padding changes C at position 2, by" in text_of("padding.position_3")


def test_batch_norm_does_not_keep_padding_at_zero():
    x, real = (each.numpy() for each in padding.padded_batch(3, 2))
    values, holds = numbers("padding.zero")
    pads = batch_norm(x.reshape(10, -1))[~real.reshape(-1)]
    assert values["largest"] == pytest.approx(np.abs(pads).max()) and holds == [True, False, False]


def test_a_share_of_zeros_changes_mean_and_variance_as_in_a_mixture():
    values = np.random.default_rng(0).normal(3, 2, 600)
    mixture = np.concatenate([values, np.zeros(200)])
    p, m, v = 0.25, values.mean(), values.var()
    assert mixture.mean() == pytest.approx((1 - p) * m)
    assert mixture.var() == pytest.approx((1 - p) * v + p * (1 - p) * m**2)
    assert numbers("padding.share")[1] == [True] and "0.5 m at 50%" in text_of("padding.share")
