"""What an output depends on, and the cells that share statistics, known from a norm's formula."""

import pytest
import torch

from normlab.inspection.norm.pooling import (
    by_axes,
    dependence,
    dependence_in_eval,
    distinct_groups,
    influences,
    pooled_cells,
)
from normlab.norms.make import make_norm

TOKENS, OTHERS = ["earlier tokens", "later tokens"], ["other samples"]


def new(name, **values):
    return make_norm(name, 4, **values).double().train()


@pytest.mark.parametrize(
    ("name", "in_training", "in_eval"),
    [
        ("none", [], []),
        ("ln", ["own token"], ["own token"]),
        ("in", TOKENS, TOKENS),
        ("bn", [*TOKENS, *OTHERS], []),
        ("bn_position", OTHERS, []),
    ],
)
def test_an_output_depends_on_what_its_norm_pools(name, in_training, in_eval):
    assert influences(dependence(new(name))) == in_training
    assert influences(dependence_in_eval(new(name))) == in_eval


def test_only_the_first_features_are_changed_if_their_number_is_set():
    cells = dependence(new("ln"), features=1)
    assert cells[..., 0].any() and not cells[..., 1:].any()


def test_group_norm_splits_the_group_that_follows_from_its_axes():
    norm = new("gn", groups=2)
    declared, found = by_axes(norm.pools), pooled_cells(norm, dependence(norm))
    assert [len(distinct_groups(cells)) for cells in (declared, found)] == [6, 12]
    assert distinct_groups(found)[:2] == [[(0, 0, 0), (0, 0, 1)], [(0, 0, 2), (0, 0, 3)]]


def test_a_norm_whose_outputs_no_other_cell_affects_keeps_its_declared_groups():
    norm = new("bn").eval()
    assert torch.equal(pooled_cells(norm, dependence(norm)), by_axes(norm.pools))
