"""The files of the articles: their tables, and errors that give file and key."""

import pytest

from normlab.articles.article import load, load_all
from normlab.config.folders import CONFIG_DIR
from normlab.errors import UserError
from tests.articles.one_cell import article

ARTICLE = """\
id: 9
title: {zh: 文章}
tables: {}
sections:
  - title: {zh: 引言}
    body: [PASSAGE]
"""


def test_the_five_articles_have_all_their_tables():
    articles = load_all(CONFIG_DIR / "article")
    assert {number: list(each.tables) for number, each in articles.items()} == {
        1: ["translation", "bert", "dimensions", "code", "summary"],
        2: ["order", "sequences", "inference", "points"],
        3: ["comparison", "choice"],
        4: ["reasons", "differences", "choice"],
        5: [],
    }


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ("[]", r"9.yaml: tables.one.rows\[0\]: every cell but the first needs `evidence:`"),
        (
            "[{sentence: no}]",
            r"9.yaml: tables.one.rows\[0\]\[1\].evidence\[0\]: needs one of check, ",
        ),
        ("[{part: 2.worse, of: x}]", r"9.yaml: .*\[0\]: `of` does not exist; choose from"),
        ("[{gap: a, of: b, row: c, to: [d]}]", r"rows\[0\]\[1\].evidence\[0\].to: .*found \['d'\]"),
    ],
)
def test_a_cell_with_missing_or_invalid_evidence_is_an_error_that_names_the_cell(
    tmp_path, evidence, message
):
    with pytest.raises(UserError, match=message):
        article(tmp_path, evidence)


@pytest.mark.parametrize(
    ("passage", "message"),
    [
        ("{zh: 句子}", r"sections\[0\].body\[0\]: needs zh and en, or a table, or a piece"),
        ("{piece: cube}", r"sections\[0\].body\[0\].piece: choose from tensor, "),
        ("{table: two}", r"sections\[0\].body\[0\].table: choose from"),
    ],
)
def test_a_passage_must_be_a_sentence_a_table_or_a_piece_that_exists(tmp_path, passage, message):
    path = tmp_path / "9.yaml"
    path.write_text(ARTICLE.replace("PASSAGE", passage), "utf-8")
    with pytest.raises(UserError, match=message):
        load(path)
