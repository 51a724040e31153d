"""A sentence for a cell with nothing to measure."""

from normlab.articles.evidence_kinds import RemarkEvidence
from normlab.articles.explanation import Remark
from normlab.claims.in_words.language import CHINESE, ENGLISH, Words


def test_a_remark_is_shown_in_either_language_without_a_verdict_or_a_place(results):
    remark = RemarkEvidence(remark=Words("没有数字", "no number"))
    assert remark.cell(results, ENGLISH).line == "no number"
    assert remark.cell(results, CHINESE).text == "没有数字"
    assert remark.explanation(results) == Remark(("没有数字", "no number"))
    assert remark.verdict(results) is None and remark.cell(results, ENGLISH).note == ""


def test_the_words_that_evidence_is_about_come_first(results):
    about = RemarkEvidence(remark=Words("无", "none"), about=Words("速度", "speed"))
    assert about.cell(results, ENGLISH).line == "speed: none"
    assert about.about_everything == RemarkEvidence(remark=Words("无", "none"))
