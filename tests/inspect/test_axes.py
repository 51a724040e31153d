"""The pooled cells of each set of axes, and how they are drawn and named."""

from itertools import combinations

import pytest

from normlab.inspect.axes import axes_in_words, cells, describe, groups, pooled
from normlab.inspect.subject import AXES

SHAPE = (2, 3, 4)
ROW = {(0, 0, d) for d in range(4)}
COLUMN = {(0, t, 0) for t in range(3)}
BY_HAND = {
    (): {(0, 0, 0)},
    ("batch",): {(0, 0, 0), (1, 0, 0)},
    ("position",): COLUMN,
    ("feature",): ROW,
    ("batch", "position"): {(s, t, 0) for s, t, _ in cells(SHAPE)},
    ("batch", "feature"): {(s, 0, d) for s, _, d in cells(SHAPE)},
    ("position", "feature"): {(0, t, d) for _, t, d in cells(SHAPE)},
    ("batch", "position", "feature"): set(cells(SHAPE)),
}
NAMES = {
    (): "sample 1, token 1, feature 1",
    ("batch",): "token 1, feature 1",
    ("position",): "sample 1, feature 1",
    ("feature",): "sample 1, token 1",
    ("batch", "position"): "feature 1",
    ("batch", "feature"): "token 1",
    ("position", "feature"): "sample 1",
    ("batch", "position", "feature"): "the whole block",
}
SUBSETS = [axes for size in range(4) for axes in combinations(AXES, size)]


@pytest.mark.parametrize("axes", SUBSETS)
def test_the_cells_pooled_with_the_first_are_those_found_by_hand(axes):
    found = pooled((0, 0, 0), set(axes), SHAPE)
    assert found == BY_HAND[axes]
    assert describe(found, SHAPE) == NAMES[axes]


@pytest.mark.parametrize("axes", SUBSETS)
def test_groups_cut_the_block_into_equal_parts(axes):
    found = groups({cell: pooled(cell, set(axes), SHAPE) for cell in cells(SHAPE)})
    size = 1
    for axis, length in zip(AXES, SHAPE, strict=True):
        size *= length if axis in axes else 1
    assert [len(group) for group in found] == [size] * (24 // size)
    assert set().union(*found) == set(cells(SHAPE))


def test_a_part_of_an_axis_is_named_by_its_range():
    assert describe({(0, 0, 0), (0, 0, 1)}, SHAPE) == "sample 1, token 1, features 1-2"
    assert axes_in_words({"position", "batch"}) == "batch, position"
    assert axes_in_words(()) == "nothing"
