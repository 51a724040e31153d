"""A table in Markdown, byte for byte, and the same values on a page."""

import dataclasses

from normlab.publishing.study_arrangement import study_arrangement
from normlab.reports.legend import About, Note
from normlab.reports.pages.report_page import study_page
from normlab.reports.table_formats.comma_separated import comma_separated
from normlab.reports.table_formats.latex import latex_table
from normlab.reports.table_formats.markdown import markdown_table
from tests.records.examples import SIGNATURE
from tests.reports.handmade import BLEU, study, table


def source():
    """Return a study without runs."""
    return study_arrangement(study(), "smoke", ())


FIGURES = {"ln": {BLEU: 35.2, "stability": "stable"}, "bn": {BLEU: "no BLEU"}}

VALUES = {
    "ln": [30.0, 30.1, 30.2, 30.1, 30.1],
    "bn": [20.0, 20.2, 20.4, 20.2, 20.2],
    "gn": [None],
}


# Differences -10, -9.9, -9.8, -9.9, -9.9: deviation 0.0707, half an interval 2.776 of it by root 5.
MARKDOWN = f"""\
**Translation, on unnamed data (norms, scale=smoke)**

| setting | at | test/bleu | valid/loss | stability | article (its data) |
| --- | --- | --- | --- | --- | --- |
| ln | - | **30.10 +- 0.07** | - | finished 5/5; diverged 0; median spikes 0 | test/bleu 35.2; stability stable |
| bn | - | 20.20 +- 0.14<br>(-9.90 [-9.99, -9.81], p < 0.001) | - | finished 5/5; diverged 0; median spikes 0 | test/bleu no BLEU |
| gn | - | - | - | not run | - |

- data: None; fp32 on None; 100 updates
- mean +- standard deviation over the seeds that finished; in brackets the difference from ln, \
paired by seed, with its 95 % t interval and p value, not corrected for multiple comparisons
- bold: better than every other row at its point, p below 0.05 after Holm over all pairs of rows; \
all rows have 5 seeds or more, all of them finished and clearly better than the untrained \
baseline, and the two runs of each pair have the same code
- article: what article 1 says, at its own size and data
- scored by: test/bleu {SIGNATURE}
"""  # noqa: E501


def test_markdown_is_fixed_byte_for_byte_and_the_page_has_the_same_bold_value(tmp_path):
    found = table(VALUES, article_values=FIGURES, article_data="its data")
    assert markdown_table(found) == MARKDOWN
    page = study_page(source(), found, tmp_path)
    assert page.count("<strong>") == 1 and "<strong>30.10" in page


def test_each_format_shows_the_value_of_the_article_but_no_difference_from_it(tmp_path):
    found = table(VALUES, article_values=FIGURES, article_data="its data")
    page = study_page(source(), found, tmp_path)
    for text in (markdown_table(found), latex_table(found), page, comma_separated(found)):
        assert "35.2" in text and "-5.1" not in text


def test_a_page_collapses_routine_notes_by_their_subject_not_by_their_words(tmp_path):
    notes = (Note("data: of mine"), Note("of yours", about=About.DATA))
    found = dataclasses.replace(table({"ln": [1.0, 2.0]}), notes=notes)
    shown, folded = study_page(source(), found, tmp_path).split("<details", 1)
    assert "data: of mine" in shown and "of yours" not in shown and "of yours" in folded
