"""A finding or score without Chinese text is an error that gives the file and key."""

import re

import pytest
import yaml

from normlab.articles.checks_in_chinese import FINDINGS_IN_CHINESE, deciding_findings, translated
from normlab.articles.results import Results
from normlab.claims.evidence import CheckFinding
from normlab.claims.in_words.language import CHINESE, ENGLISH
from normlab.claims.source import EvidenceSource
from normlab.config.folders import RESULTS
from normlab.errors import UserError

FINDINGS = [
    CheckFinding("?", "changes by 20%", "contradicts", {"moved": 0.2}, "bn"),
    CheckFinding("?", "identical", "supports", {}, "ln"),
]


def found(path, *only):
    results = Results(path.parent)
    results.checks = {"a.check": FINDINGS}
    source = EvidenceSource(kind="check", check="a.check", only=only)
    return [chinese for _, chinese in deciding_findings(source, results, path)]


def test_findings_get_their_chinese_text_by_name_in_any_order(tmp_path):
    path = tmp_path / "findings.yaml"
    path.write_text("checks: {a.check: {ln: {supports: 不变}, bn: '变化 {moved:.0%}'}}")
    assert found(path) == ["变化 20%", "不变"]
    assert found(path, "ln") == ["不变"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "checks: {a.check: {ln: {supports: 不变}}}",
            "a.check.bn: no text in Chinese yet; translate changes by 20%",
        ),
        ("checks: {}", "a.check.bn: no text in Chinese yet; translate"),
        ("checks: {a.check: {bn: [1]}}", "checks.a.check.bn: "),
        (
            "checks: {a.check: {bn: '{off}'}}",
            "a.check.bn: '{off}' quotes an unknown number; the finding's numbers",
        ),
    ],
)
def test_a_missing_or_invalid_chinese_text_is_an_error_with_file_and_key(
    content, message, tmp_path
):
    path = tmp_path / "findings.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=re.escape(f"{path}: {message}")):
        found(path)


def test_a_result_that_does_not_change_is_not_said_to_change_by_0_percent():
    texts, checks = (
        yaml.safe_load(FINDINGS_IN_CHINESE.read_text("utf-8"))["checks"],
        Results(RESULTS),
    )
    shown = [
        translated(text, checks.finding(check, name), check)
        for check, by_name in texts.items()
        for name, text in by_name.items()
        if isinstance(text, str)
    ]
    assert len(shown) > 60
    assert [text for text in shown if re.search(r"(变化|差别为) 0(\.0+)?%", text)] == []


def test_large_counts_are_exact_in_chinese():
    results = Results(RESULTS)
    for check, counts in {"facts.bert_base": ["109,482,240"], "modes.memory": ["32,768"]}.items():
        source = EvidenceSource(kind="check", check=check)
        ((finding, chinese),) = deciding_findings(source, results)
        for count in counts:
            assert count in chinese and count in finding.finding and "约" not in chinese


def test_the_error_for_a_score_without_a_name_says_where_to_add_one():
    with pytest.raises(
        UserError,
        match=r"language\.zh\.yaml: scores\.chrf: no text in Chinese yet; translate chrF",
    ):
        CHINESE.score_name("test/chrf")
    with pytest.raises(
        UserError, match=r"score test/nothing is unknown: normlab/metrics/glossary\.py"
    ):
        ENGLISH.score_name("test/nothing")
