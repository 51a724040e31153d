"""Rows and seeds are found as people write them, and what is none is named."""

import pytest

from normlab.commands._study_words import read_rows, read_seeds
from normlab.studies import Scale, Study

ROWS = ["ln", "bn", "bn in the encoder", "bn, padding counted", "bn, padding filled", "none"]


def study(rows, elsewhere=()):
    """Return a study of these rows at scale=cpu, and of others that this scale has not."""
    scale = Scale((), (1,), 1.0, "none", tuple(rows), {})
    every = {row: () for row in (*rows, *elsewhere)}
    return Study("one", "", "D0", "", (), every, {}, (), {}, {"cpu": scale})


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("ln,bn", ["ln", "bn"]),
        ("bn, ln", ["ln", "bn"]),
        ("1,6", ["ln", "none"]),
        ("[ln,'bn, padding counted']", ["ln", "bn, padding counted"]),
        ('"bn, padding counted",none', ["bn, padding counted", "none"]),
        ("ln,bn, padding filled,none", ["ln", "bn, padding filled", "none"]),
        ("bn i,no", ["bn in the encoder", "none"]),
        ("'bn, padding c'", ["bn, padding counted"]),
        ("ln,ln,1", ["ln"]),
    ],
)
def test_rows_are_names_beginnings_or_numbers_in_the_order_of_the_study(text, rows):
    assert read_rows(text, study(ROWS), "cpu") == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gn", "rows: 'gn' is no row: there are 1 ln; 2 bn; 3 bn in the encoder; 4 bn, padding"),
        ("7", "rows: '7' is no row"),
        ("0", "rows: '0' is no row"),
        ("'bn, p'", "'bn, p' fits 'bn, padding counted' and 'bn, padding filled': there are 1 ln"),
        ("", "rows=: expected names or numbers of rows"),
        ("[ln", r"rows=\[ln: expected names"),
        ("ln: bn", "rows=ln: bn: expected names"),
    ],
)
def test_what_is_no_row_is_named_with_those_there_are(text, message):
    with pytest.raises(ValueError, match=message):
        read_rows(text, study(ROWS), "cpu")


@pytest.mark.parametrize("text", ["peak", "ln,peak", "'peak, late'", "peak, late"])
def test_a_row_that_the_scale_leaves_out_is_said_to_be_one_of_the_study(text):
    asked = "peak, late" if "late" in text else "peak"
    with pytest.raises(
        ValueError,
        match=f"rows: '{asked}' is a row of the study, but not of scales.cpu.rows in "
        "configs/study/one.yaml: add it there, or take one of 1 ln; 2 bn",
    ):
        read_rows(text, study(["ln", "bn"], ["peak", "peak, late"]), "cpu")


@pytest.mark.parametrize("asked", ["bn", "1"])
def test_a_row_that_the_scale_leaves_out_is_never_taken_for_another(asked):
    with pytest.raises(ValueError, match=f"rows: '{asked}' is a row of the study, but not of"):
        read_rows(asked, study(["ln", "bn in the encoder"], ["bn", "1"]), "cpu")


def test_a_row_called_by_a_number_goes_before_the_number():
    assert read_rows("2", study(["8", "16", "2"]), "cpu") == ["2"]


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
