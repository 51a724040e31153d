"""Rows and seeds are read in the forms that people type, and unknown ones are refused."""

import pytest

from normlab.studies.study import Scale, Study
from normlab.studies.study_part import (
    StudyPart,
    read_rows,
    read_seeds,
    smallest_part,
    words_by_study,
)

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


@pytest.mark.parametrize(
    ("places", "words", "settings"),
    [
        ({("ln", "batch_size=2"), ("bn", "batch_size=8")}, ["rows=ln,bn", "batch_size=2,8"], 4),
        ({("bn, padding filled", "batch_size=2")}, ["rows=5", "batch_size=2"], 1),
        ({(row, f"batch_size={size}") for row in ROWS for size in (2, 8, 32)}, [], 18),
    ],
)
def test_the_smallest_part_has_the_given_rows_and_points(places, words, settings):
    grid = {"batch_size": {size: (f"batch_size={size}",) for size in ("2", "8", "32")}}
    sizes = {"small": Scale((), (1,), 1.0, "none", tuple(ROWS), grid)}
    made = Study("one", "", "article 1", "", {row: () for row in ROWS}, (), sizes, grid=grid)
    part = smallest_part(made, "small", places)
    assert (part.words, len(part.places)) == (words, settings)
    chosen = StudyPart.of(made, ["scale=small", *words])
    runs = made.planned("small", rows=chosen.rows, extra=chosen.extra)
    assert {(run.row, run.point) for run in runs} == {*part.places}
    assert len(runs) == settings and places <= {(run.row, run.point) for run in runs}


def test_an_override_for_one_study_replaces_that_for_all_studies():
    words = ["a", "a:steps=2", "b", "budget.steps=1", "b:row=ln", "rows=bn"]
    assert words_by_study(words) == {
        "a": ["rows=bn", "steps=2"],
        "b": ["budget.steps=1", "row=ln"],
    }
