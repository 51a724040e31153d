import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normlab.reports.figures.panels import apart, label


def test_names_with_room_stay_where_their_lines_end():
    assert apart([10.0, 50.0, 90.0], [10.0, 10.0, 10.0], limit=100.0) == [10.0, 50.0, 90.0]


def test_two_names_at_one_place_share_the_way():
    assert apart([50.0, 50.0], [10.0, 10.0], limit=100.0) == [45.0, 55.0]


def test_names_stay_in_the_panel():
    assert apart([0.0, 0.0], [10.0, 10.0], limit=100.0) == [5.0, 15.0]
    assert apart([100.0, 100.0], [10.0, 20.0], limit=100.0) == [75.0, 90.0]


@given(
    st.lists(st.tuples(st.floats(0, 200), st.floats(5, 30)), max_size=8),
)
def test_nothing_overlaps_and_the_order_stays(ends):
    wanted, heights = [y for y, _ in ends], [h for _, h in ends]
    centres = apart(wanted, heights, limit=250.0)
    order = sorted(range(len(ends)), key=lambda index: wanted[index])
    for below, above in itertools.pairwise(order):
        room = (heights[below] + heights[above]) / 2
        assert centres[above] - centres[below] >= room - 1e-6
    for centre, height in zip(centres, heights, strict=True):
        assert centre >= height / 2 - 1e-6
        assert centre <= 250 - height / 2 + 1e-6


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("bn", ("bn",)),
        ("ln post batch_size=32 schedule=cosine", ("ln post batch_size=32", "schedule=cosine")),
        ("decoder.1.ffn_residual.feed_forward.inner_norm", None),
        ("x" * 60, ("x" * 28, "x" * 28, "xxxx")),
    ],
)
def test_long_names_fold_and_lose_nothing(name, rows):
    folded = label(name).name
    assert rows is None or folded == rows
    assert "".join(folded).replace(" ", "") == name.replace(" ", "")
    assert all(len(row) <= 28 for row in folded)
    if rows is None:
        assert all(row[-1] in "._" for row in folded[:-1]), "at the end of a part"
