"""A finding of a computed check as evidence."""

import pytest

from normlab.articles.checks_in_chinese import ByStanding
from normlab.articles.evidence_kinds import CheckEvidence
from normlab.articles.explanation import FromCheck
from normlab.articles.results import Results
from normlab.claims.evidence import CheckFinding
from normlab.claims.in_words.language import CHINESE, ENGLISH


@pytest.fixture
def results(tmp_path):
    made = Results(tmp_path, {})
    made.checks = {
        "a.check": [
            CheckFinding("Is it equal", "moves by 20%", "contradicts", {"moved": 0.2}, "bn"),
            CheckFinding("Is it equal", "identical", "supports", {}, "ln"),
        ]
    }
    return made


def evidence(name, zh):
    return CheckEvidence(check="a.check", finding=name, zh=zh)


def test_a_cell_has_the_verdict_and_the_place_of_the_finding(results):
    bn, ln = evidence("bn", "变化 {moved:.0%}"), evidence("ln", ByStanding(supports="不变"))
    assert bn.cell(results, ENGLISH).line == "does not hold [a.check 1]"
    assert ln.cell(results, CHINESE).line == "成立 [a.check 2]"


def test_a_note_has_the_question_in_english_and_what_was_found_in_both_languages(results):
    bn = evidence("bn", "变化 {moved:.0%}")
    note = "[a.check 1] does not hold: Is it equal. Measured: moves by 20%."
    assert bn.cell(results, ENGLISH).note == note
    assert bn.cell(results, CHINESE).note == "[a.check 1] 不成立。变化 20%。"
    explanation = bn.explanation(results)
    assert isinstance(explanation, FromCheck) and explanation.verdict == "contradicted"
    assert explanation.findings == (("变化 20%", "moves by 20%"),)
