"""The page that says which norm when, `results/which_norm.md`."""

import re

import msgspec
import pytest

from normlab.advice.which_norm import load_situations, which_norm_text
from normlab.articles.results import Results
from normlab.claims.in_words.language import CHINESE, Words
from normlab.config.folders import CONFIG_DIR
from normlab.errors import UserError
from tests.claims.ledgers import saved_claim, saved_part

RESULTS = CONFIG_DIR.parent / "results"
SITUATION = """
situations:
  - when: {zh: 翻译, en: Translation}
    advice: {zh: 用层归一化。, en: Layer norm.}
    rests_on: {2.worse: supported}
    also: [2.figure]
    numbers:
      - {gap: test/accuracy, of: vit_norms/small, row: bn, to: ln, within: [-1, 0],
         about: {zh: 准, en: accuracy}}
"""


def ledger(verdict):
    """Return results in which claim 2 has two parts, the first with this verdict."""
    worse = saved_part("worse", verdict, finding="2 [1, 3]")
    figure = saved_part("figure", "not measured", 2, finding="2 [1, 3]")
    return Results(RESULTS, {2: saved_claim(2, worse, figure)})


@pytest.fixture
def situations(tmp_path):
    path = tmp_path / "which_norm.yaml"
    path.write_text(SITUATION, "utf-8")
    return load_situations(path)


def test_advice_is_followed_by_its_evidence_in_both_languages(situations):
    english, chinese = which_norm_text(situations, ledger("supported")).split("## 中文")
    assert "| Translation | Layer norm. |" in english and "| 翻译 | 用层归一化。 |" in chinese
    assert "\n**Layer norm.**\n\nIt rests on:\n\n- *holds* [2.1](claims.md#claim-2): " in english
    assert "It is worse. Measured: 2 [1, 3]." in english
    assert "*not tested* [2.2](claims.md#claim-2): It is worse.\n" in english


def test_measured_numbers_without_a_verdict_are_listed_between_the_verdicts(situations):
    english, chinese = which_norm_text(situations, ledger("supported")).split("## 中文")
    measured = r"- accuracy: 0\.\d+ \[.+\] lower \(CIFAR-10.*, 5 seeds\)"
    assert re.search(rf"\n\nMeasured, without a verdict:\n\n{measured}\n\nSee also:", english)
    assert "\n\n另有实测，未作判定：\n\n- 准：低 0." in chinese


@pytest.mark.parametrize("verdict", ["undecided", "contradicted", "no difference"])
def test_advice_is_withdrawn_if_a_verdict_it_rests_on_changes(situations, verdict):
    english, chinese = which_norm_text(situations, ledger(verdict)).split("## 中文")
    assert (
        "| Translation | No advice: what it rests on has changed since it was written. |" in english
    )
    assert "Layer norm." not in english and "用层归一化" not in chinese


def test_advice_is_withdrawn_if_a_number_leaves_its_bounds(tmp_path):
    path = tmp_path / "which_norm.yaml"
    path.write_text(SITUATION.replace("[-1, 0]", "[0, null]"), "utf-8")
    english = which_norm_text(load_situations(path), ledger("supported")).split("## 中文")[0]
    assert "| Translation | No advice: what it rests on has changed since it was" in english
    assert "Layer norm." not in english and "\n- accuracy: 0." in english


def test_numbers_in_advice_come_from_the_evidence_it_rests_on(situations):
    path = CONFIG_DIR / "which_norm.yaml"
    results = Results(RESULTS)
    for each in load_situations(path):
        parts = [results.part(name) for name in (*each.rests_on, *each.also)]
        rests_on = " ".join([part.question + part.statement for part in parts])
        rests_on += " ".join(f"{number.row} {number.at}" for number in each.numbers)
        for text in (each.advice.zh, each.advice.en):
            typed = re.findall(r"\d[\d.]*\d|\d", re.sub(r"\{.*?\}", "", text))
            assert set(typed) <= set(re.findall(r"\d[\d.]*\d|\d", rests_on)), text
    replaced = msgspec.structs.replace(
        situations[0], advice=Words(zh="低 {0:.3f}", en="{0:.3f} lower")
    )
    gap = replaced.numbers[0].interval(results).mean
    assert replaced.advice_text(results, CHINESE) == f"低 {-gap:.3f}" and gap < 0


def test_all_published_advice_still_follows_from_the_results():
    situations = load_situations(CONFIG_DIR / "which_norm.yaml")
    results = Results(RESULTS)
    changed = [each.changed_parts(results) + each.changed_numbers(results) for each in situations]
    assert len(changed) > 10 and not any(changed)


def test_measured_findings_also_have_their_numbers_in_chinese():
    situations = load_situations(CONFIG_DIR / "which_norm.yaml")
    chinese = which_norm_text(situations, Results(RESULTS)).split("## 中文")[1]
    for found in ("训练成功的种子数：", "BLEU 之差 -2.98 [", "批归一化（前馈层内也用）用时比"):
        assert f"实测：{found}" in chinese
    assert "在界限 ±0.05 之内" in chinese and not re.search(r"实测：-?\d", chinese)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{2.worse: supported}", "{}", r"situations\[0\].rests_on: is empty; list a part"),
        (
            "supported",
            "holds",
            r"rests_on.2.worse: 'holds' is not a verdict; choose from supported",
        ),
        ("also:", "and:", "and"),
        ("gap:", "hole:", "hole"),
        (
            "within: [-1, 0]",
            "data: true",
            r"situations\[0\].numbers\[0\]: .*missing required field `within`",
        ),
    ],
)
def test_an_invalid_file_raises_an_error_that_names_the_key(tmp_path, old, new, message):
    path = tmp_path / "which_norm.yaml"
    path.write_text(SITUATION.replace(old, new), "utf-8")
    with pytest.raises(UserError, match=message):
        load_situations(path)
