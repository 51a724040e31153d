"""Rows and seeds are found as people write them, and what is none is named."""

import pytest

from normlab.studies import Scale, Study
from normlab.studies.queue import read_rows, read_seeds

ROWS = ["ln", "bn", "bn in the encoder", "bn, padding counted", "bn, padding filled", "none"]


def study(rows):
    """Return a study of these rows at scale=small."""
    scale = Scale((), (1,), 1.0, "none", tuple(rows), {})
    return Study("one", "", "D0", "", (), {row: () for row in rows}, {}, (), {}, {"small": scale})


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("bn, ln", ["ln", "bn"]),
        ("1,6", ["ln", "none"]),
        ("[ln,'bn, padding counted']", ["ln", "bn, padding counted"]),
        ('"bn, padding counted",none', ["bn, padding counted", "none"]),
    ],
)
def test_rows_are_names_or_numbers_in_the_order_of_the_study(text, rows):
    assert read_rows(text, study(ROWS), "small") == rows


@pytest.mark.parametrize("text", ["gn", "7", "", "[ln", "ln: bn"])
def test_what_is_no_row_is_named_with_those_there_are(text):
    with pytest.raises(
        ValueError, match=r"is not a row of scale=small: there are 1 ln; 2 bn; 3 bn in"
    ):
        read_rows(text, study(ROWS), "small")


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1", [1]), ("1,2,3", [1, 2, 3]), ("1-5", [1, 2, 3, 4, 5]), ("7,1-3", [7, 1, 2, 3])],
)
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1,", "1-", "-1", "3-1", "1-99999", "1.5"])
def test_what_is_no_seed_is_refused(text):
    with pytest.raises(ValueError, match=rf"seeds={text}: "):
        read_seeds(text)
