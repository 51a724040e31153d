"""Claims as lines for a terminal."""

from msgspec.structs import replace

from normlab.claims.in_words.claim_lines import claim_lines, list_lines, mention_lines
from normlab.claims.in_words.language import CHINESE, ENGLISH
from tests.claims.ledgers import saved_claim, saved_part

PART = saved_part("p", "supported", verdict_text="supported: 5 seeds", grades=("三级", "C"))
CLAIM = replace(
    saved_claim(7, PART),
    **{"statement": "LN is better.", "chinese": "层归一化更好。", "verdict": "supported"},
    **{"verdict_text": "supported", "answer": "Yes.", "chinese_answer": "是。"},
)


def test_a_list_has_each_claim_with_its_verdict_and_answer_and_counts_the_verdicts():
    lines = list_lines([CLAIM, CLAIM], ENGLISH, 80)
    assert lines[:2] == [" 7  [supported] LN is better.", "    - Yes."]
    assert "2 supported" in lines and lines[-1] == ENGLISH.claims.last_of_list
    assert list_lines([CLAIM], CHINESE, 80)[0] == " 7  [成立] 层归一化更好。"


def test_a_claim_shows_its_parts_and_only_the_facts_that_it_has():
    lines = claim_lines(CLAIM, ENGLISH, 80)
    assert lines[0] == "Claim 7: LN is better." and "1. It is worse." in lines
    assert "  verdict     supported: 5 seeds" in lines
    assert not any(line.startswith("  question") for line in lines), "the part has no question"
    chinese = claim_lines(CLAIM, CHINESE, 80)
    assert any("成立（三级）" in line for line in chinese)


def test_a_mention_is_one_line_per_claim_which_is_cut_to_the_width():
    lines = mention_lines([CLAIM], "worse", ENGLISH, 20)
    assert lines[0] == " 7  [supported] It\u2026"
    assert mention_lines([CLAIM], "nothing such", ENGLISH, 20)[0] == ""
