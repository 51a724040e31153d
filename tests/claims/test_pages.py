"""The ledger's pages show the evidence, escape its text, and are reproducible."""

import re
from dataclasses import replace

import pytest
from msgspec import structs

from normlab.claims.endpoint import Measurement, Scope
from normlab.claims.in_words.language import CHINESE, ENGLISH
from normlab.claims.pages import markdown, summary
from normlab.claims.verdict import PART_VERDICTS
from normlab.config.folders import CONFIG_DIR
from tests.claims.ledgers import (
    COMMAND,
    ENDPOINT,
    compared,
    decided,
    judged_claim,
    judged_claims,
    open_part,
)


def section(text, number):
    """Return the page's section on a claim."""
    return text.partition(f"## Claim {number}\n")[2].partition("\n## Claim ")[0]


def test_the_page_shows_verdicts_answers_values_and_links_to_the_records():
    text = markdown(judged_claims())
    counts = "1 supported, 1 contradicted, 1 mixed, 1 undecided, 1 not measured"
    assert f"5 claims: {counts}." in text
    for each in judged_claims():
        assert each.claim.statement in text and each.grades in text
        assert f"- Answer: {each.claim.answer}\n" in section(text, each.claim.id)
    for said in (
        "-2.27 [-3.45, -1.09] (34.60 with layer norm, 36.80 with batch norm)",
        "5 seeds, 99 % | 0.001 | 0.012 | **contradicted** (C: Multi30k, 2+2 layers)",
        "[norms/cpu](norms/cpu/records.jsonl): ln, bn",
        "- See also: [results/LOG.md](LOG.md)",
        "\n1. It is so (worse).\n2. It is so (by_much).\n",
    ):
        assert said in section(text, 2)
    shown, _, folded = section(text, 2).partition("<details>")
    assert "1.00 [0.00, 2.00]" in folded and "1.00 [0.00, 2.00]" not in shown


def test_the_page_numbers_the_parts_of_claims():
    page = markdown(judged_claims())
    rows = re.findall(r"^\| ([^\[|]+) \|", page, re.MULTILINE)
    assert set(rows) == {"#", "---", "part", "1", "2"}


def test_unmeasured_parts_have_a_reason_and_a_command_to_measure_them():
    said = section(markdown(judged_claims()), 12)
    assert "There is no task of pictures." in said
    assert f"- Part 2, to measure: `{COMMAND}` (30 runs, about 2.0 h)" in said
    assert "- Part 2, runs that do not count: tested weights chosen by loss: 3" in said


def test_markup_in_texts_is_escaped_in_table_rows():
    odd = "<b>a|b</b>"
    endpoint = structs.replace(ENDPOINT, better={"norm": odd})
    values = {"estimate": None, "finding": odd, "behind": {f"norm={odd}": 1.0}}
    shown = compared("supported", endpoint=endpoint, scope=Scope(odd), **values)
    missing = open_part(reason=odd, to_measure=Measurement(odd, odd))
    parts = decided("a", shown, statement=odd), decided("b", missing)
    text = markdown([judged_claim(5, *parts, statement=odd, figure=odd)])
    assert all(odd not in line for line in text.splitlines() if line.startswith("| "))


def test_the_links_of_the_committed_page_lead_to_existing_files():
    results = CONFIG_DIR.parent / "results"
    text = (results / "claims.md").read_text("utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (results / link).exists(), link


@pytest.mark.parametrize(
    ("chinese", "headings"),
    [
        (False, ("True here", "Not true here", "Partly true", "Open")),
        (True, ("在此成立", "在此不成立", "部分成立", "尚无定论")),
    ],
)
def test_the_summary_lists_each_claim_once_per_language_below_its_verdict(chinese, headings):
    first, *rest = judged_claims()
    named = replace(first, claim=structs.replace(first.claim, chinese="层归一化最好。"))
    half = summary([named, *rest]).split("## 中文")[chinese]
    assert ("层归一化最好。" in half, first.claim.statement in half) == (chinese, not chinese)
    lines = half.splitlines()
    for number, heading in enumerate(headings, 1):
        below = lines[lines.index(f"### {heading} (1)") + 2]
        assert below.startswith(f"- [{number}](claims.md#claim-{number}) ")
        assert ("\n  **回答 " in half, "\n  **Answer " in half) == (chinese, not chinese)
        assert half.count(f"[{number}](") == 1


def test_the_summary_shows_each_part_with_its_verdict_and_decided_parts_first():
    size = decided("size", compared("undecided", reason="its size is open"))
    some = judged_claim(3, decided("worse", compared("supported")), size)
    one, two = (each.part.statement.removesuffix(".") for each in some.primary)
    english, chinese = summary([some]).split("## 中文")
    assert f"\n  - *true*: {one} (C: Multi30k, 2+2 layers)\n  - *open*: {two}\n" in english
    assert f"\n  - *成立*：{one}（C：Multi30k，2+2 层）\n  - *尚无定论*：{two}\n" in chinese
    turned = replace(some, primary=some.primary[::-1])
    assert summary([turned]) == summary([some]), "decided parts come first"
    same = replace(some.primary[1], verdict="no difference")
    english, chinese = summary([replace(some, primary=(same,))]).split("## 中文")
    assert f"  - *not true (the difference is too small)*: {two} (" in english
    assert f"  - *不成立，差别太小*：{two}（" in chinese


def test_the_summary_names_verdicts_as_all_other_pages_do():
    english, chinese = summary(judged_claims()).split("## 中文")
    for verdict in PART_VERDICTS:
        assert f"*{CHINESE.verdicts[verdict]}*" in chinese, verdict
    assert f"*{ENGLISH.verdicts['not measured']}*" in english


def test_grades_in_the_chinese_summary_are_in_chinese():
    text = (CONFIG_DIR.parent / "results" / "summary.md").read_text("utf-8")
    chinese = text[text.index("## 中文") :]
    grades = set(re.findall(r"（([ABCD](?:：[^（）]*)?)）\n", chinese))
    assert "C：Multi30k 德译英，2+2 层" in grades and "D" in grades
    assert "C：UCI 的葡萄酒和乳腺癌数据，2 层" in grades
