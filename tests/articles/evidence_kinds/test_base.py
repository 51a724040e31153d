"""Evidence that does not exist is an error that names it."""

import re

import pytest

from normlab.articles.table import shown_table
from normlab.claims.in_words.language import CHINESE, ENGLISH
from normlab.errors import UserError
from tests.articles.one_cell import article


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ("[{part: 2.wrse}]", "has no part 2.wrse; parts of claim 2: worse, "),
        ("[{part: 99.worse}]", "has no part 99.worse"),
        (
            "[{check: modes.mismatch, finding: xn, zh: 文}]",
            "modes.mismatch has no finding 'xn'; choose from bn, ln",
        ),
        (
            "[{score: test/bleu, of: translation_norms/small, row: xn}]",
            "no run of 'xn'; choose from ",
        ),
        (
            "[{score: test/blau, of: translation_norms/small, row: ln, at: placement=pre}]",
            "no score",
        ),
        ("[{score: test/bleu, of: translation_norms/huge, row: ln}]", "records.jsonl is missing"),
    ],
)
def test_missing_evidence_raises_an_error_that_names_the_evidence(
    tmp_path, results, evidence, message
):
    with pytest.raises(UserError, match=message):
        shown_table(article(tmp_path, evidence), "one", results, ENGLISH)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("变化 {moved:.1%}", "the finding's numbers are few, many"),
        ("输出不同", "write {supports: 输出不同}"),
        ("{contradicts: 输出相同}", "now supports its claim"),
    ],
)
def test_a_chinese_finding_must_quote_existing_numbers_or_state_its_standing(
    tmp_path, results, text, message
):
    for good, note in (
        ("变化 {few:.1%}", r"变化 \d+\.\d%。"),
        ("{supports: 输出不同}", "输出不同。"),
    ):
        zh = good if good.startswith("{supports") else f"'{good}'"
        made = article(tmp_path, f"[{{check: modes.mismatch, finding: bn, zh: {zh}}}]")
        assert re.fullmatch(
            rf"\[modes\.mismatch 1\] 成立。{note}",
            shown_table(made, "one", results, CHINESE).notes[0],
        )
    zh = text if text.startswith("{contradicts") else f"'{text}'"
    made = article(tmp_path, f"[{{check: modes.mismatch, finding: bn, zh: {zh}}}]")
    with pytest.raises(UserError, match=message):
        shown_table(made, "one", results, CHINESE)
