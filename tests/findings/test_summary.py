"""The summary of findings: its order, its lines and its colours."""

import pytest

from normlab.findings.finding import Finding
from normlab.findings.summary import by_harm, conclusion, summary

FINDINGS = {
    "norms": Finding("names and behavior agree"),
    "future": Finding("later tokens change the output", verdict="look", value=0.1),
    "padding": Finding("the output changes by 20 %", verdict="look", value=0.2),
    "depth": Finding.none("no gradient"),
    "sinks": Finding.none("no gradient"),
    "forward": Finding("no answer", verdict="failed"),
}


def test_findings_are_sorted_by_verdict_and_then_by_value():
    order = [*by_harm(FINDINGS)]
    assert order == ["forward", "padding", "future", "norms", "depth", "sinks"]


def test_questions_that_do_not_apply_for_the_same_reason_share_a_line():
    *_, last = summary(FINDINGS, width=80)
    assert last == "does not apply  depth, sinks: no gradient"


def test_a_line_is_wrapped_below_its_question_and_keeps_a_number_with_its_unit():
    lines = [*summary({"padding": FINDINGS["padding"]}, width=48)]
    assert lines == ["look            padding: the output changes by", " " * 16 + "20 %"]


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("forward", "\x1b[31mfailed\x1b[0m          forward: no answer"),
        ("norms", "\x1b[32mfine\x1b[0m            norms: names and behavior agree"),
        ("depth", "does not apply  depth: no gradient"),
    ],
)
def test_only_the_verdict_is_coloured(question, line):
    assert [*summary({question: FINDINGS[question]}, width=80, in_colour=True)] == [line]


def test_the_conclusion_lists_failed_questions_and_those_worth_a_look():
    assert conclusion(FINDINGS) == "failed: forward; worth a look: padding, future"
    assert conclusion({}) == "nothing is broken; nothing is worth a look"
