"""What was found on a part, as a sentence in either language."""

import pytest
from msgspec import structs

from normlab.claims.in_words.finding_text import facts_text, finding_text
from normlab.claims.in_words.language import CHINESE, ENGLISH
from tests.claims.ledgers import saved_part

NUMBERS = {"scores": ("test/bleu",), "value": -2.27, "low": -3.45, "high": -1.09, "n": 5}


def difference(verdict, *number, **values):
    """Return a part with a difference whose margin is 0.5, and its numbers as text."""
    part = saved_part("p", verdict, limits=(-0.5, 0.5), **{**NUMBERS, **values})
    return structs.replace(part, number=number)


def test_a_difference_has_its_interval_and_margin_in_both_languages():
    part = difference("contradicted", "-2.27", "-3.45", "-1.09")
    english = "difference in BLEU -2.27 [-3.45, -1.09]; margin \u00b10.5"
    assert finding_text(part, ENGLISH) == english
    assert "\u22122.27 [\u22123.45, \u22121.09]" in finding_text(part, ENGLISH.typeset)
    assert "BLEU" in finding_text(part, CHINESE) and "margin" not in finding_text(part, CHINESE)


@pytest.mark.parametrize(("language", "text"), [(ENGLISH, "equal to 1e-7"), (CHINESE, "")])
def test_a_check_finding_in_the_ledger_has_an_english_text_and_no_chinese_one(language, text):
    assert (
        finding_text(saved_part("p", "supported", finding="equal to 1e-7", n=1), language) == text
    )
    assert finding_text(saved_part("p", "not measured", finding="equal"), language) == ""


def test_facts_end_with_the_test_in_english_and_the_number_of_seeds_in_chinese():
    part = difference("contradicted", "-2.27", "-3.45", "-1.09", test="t test, n = 5.")
    assert facts_text(part, ENGLISH).endswith("; t test, n = 5")
    assert facts_text(part, CHINESE).endswith("；n = 5")
