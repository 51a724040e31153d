"""An article's table on a terminal."""

from normlab.articles.evidence_kinds import CellText
from normlab.articles.table import ShownRow, ShownTable
from normlab.articles.table_text import text_of
from normlab.claims.in_words.language import ENGLISH

ROW = ShownRow("Transformer", ["35.2"], [[CellText("34.6 +- 0.3", "2.1")]])


def table(**changes):
    values = {"caption": "Table", "label": "a", "head": ["norm", "BLEU"], "rows": [ROW]}
    return ShownTable(**{**values, "below": [], "notes": [], "language": ENGLISH, **changes})


def test_each_row_has_the_articles_words_above_what_was_found():
    caption, body = text_of(table(), 60).split("\n\n")
    head, line, article, measured = body.strip("\n").splitlines()
    assert caption == "Table" and set(line) == {"\u2500"}
    assert head.split() == ["norm", "BLEU"]
    assert article.split() == ["Transformer", "article", "35.2"]
    assert measured.split() == ["measured", "34.6", "+-", "0.3", "[2.1]"]


def test_long_cells_are_folded_and_notes_hang():
    found = CellText("word " * 20, "")
    text = text_of(table(rows=[ShownRow("LN", ["x"], [[found]])], notes=["note " * 20]), 40)
    assert all(len(line) <= 40 for line in text.splitlines())
    assert text.split("\n\n")[-1].splitlines()[1].startswith("  note")
