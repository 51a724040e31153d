"""A finding or score without Chinese text is an error that gives the file and key."""

import re

import pytest

from normlab.articles.checks_in_chinese import deciding_findings
from normlab.articles.results import Results
from normlab.claims.evidence import CheckFinding
from normlab.claims.in_words.language import CHINESE, ENGLISH
from normlab.claims.source import EvidenceSource
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
