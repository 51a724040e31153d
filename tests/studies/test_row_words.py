"""The words of a row's name in a study's file."""

import pytest

from normlab.reports.arrangement.row_names import RowName
from normlab.studies.row_words import row_words


@pytest.mark.parametrize(
    ("name", "words", "in_sentence"),
    [
        (
            "bn+ln pre, padding counted",
            (("bn", "ln"), " pre", ("padding counted",)),
            "bn+ln pre (padding counted)",
        ),
        ("pictures, all", ((), "pictures", ("all",)), "pictures (all)"),
        ("bn", (("bn",), "", ()), "bn"),
    ],
)
def test_a_row_has_norms_if_its_first_word_consists_of_options(name, words, in_sentence):
    assert row_words(name) == words
    row = RowName(*row_words(name))
    assert (row.text, row.in_sentence) == (name, in_sentence)
