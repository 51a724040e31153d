"""Rows and seeds are read in the forms that people type, and unknown ones are refused."""

import pytest

from normlab.studies.study import Scale, Study
from normlab.studies.study_part import read_rows, read_seeds

ROWS = ["ln", "bn", "bn in the encoder", "bn, padding counted", "bn, padding filled", "none"]


def study(rows):
    """Return a study with these rows at scale=small."""
    scale = Scale((), (1,), 1.0, "none", tuple(rows), {})
    return Study("one", "", "article 1", "", {row: () for row in rows}, (), {"small": scale})


def test_rows_may_be_names_or_numbers_and_keep_the_order_of_the_study():
    for text, rows in {
        "bn, ln": ["ln", "bn"],
        "1,6": ["ln", "none"],
        "[ln,'bn, padding counted']": ["ln", "bn, padding counted"],
        '"bn, padding counted",none': ["bn, padding counted", "none"],
    }.items():
        assert read_rows(text, study(ROWS), "small") == rows
    said = r"is not a row of scale=small; choose from 1 ln; 2 bn; 3 bn in"
    for text in ("gn", "7", "", "[ln", "ln: bn"):
        with pytest.raises(ValueError, match=said):
            read_rows(text, study(ROWS), "small")


def test_seeds_may_be_numbers_and_ranges():
    for text, seeds in {"1": [1], "1,2,3": [1, 2, 3], "1-3": [1, 2, 3], "7,1-2": [7, 1, 2]}.items():
        assert read_seeds(text) == seeds
    for text in ("", "a", "1,", "1-", "-1", "3-1", "1-99999", "1.5"):
        with pytest.raises(ValueError, match=rf"seeds={text}: "):
            read_seeds(text)
