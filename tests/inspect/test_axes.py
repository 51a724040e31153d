"""The pooled cells of each set of axes, and how they are drawn and named."""

from itertools import combinations, product

import pytest

from normlab.inspect.axes import SHAPE, axes_in_words, by_axes, describe, groups
from normlab.inspect.subject import AXES

CELLS = [*product(*map(range, SHAPE))]
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
def test_groups_cut_the_block_into_equal_parts(axes):
    first, *others = groups(by_axes(set(axes)))
    kept = [axis for axis, name in enumerate(AXES) if name not in axes]
    assert first == [cell for cell in CELLS if not any(cell[axis] for axis in kept)]
    assert describe(first) == NAMES[axes]
    assert {len(group) for group in others} <= {len(first)}
    assert sorted(cell for group in (first, *others) for cell in group) == CELLS


def test_a_part_of_an_axis_is_named_by_its_range():
    assert describe([(0, 0, 0), (0, 0, 1)]) == "sample 1, token 1, features 1-2"
    assert axes_in_words({"position", "batch"}) == "batch, position"
    assert axes_in_words(()) == "nothing"
