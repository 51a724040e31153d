"""The pages of the ledger say what the evidence says, escape it, and are always the same."""

import re
from dataclasses import replace

import pytest
from msgspec import structs

from normlab.claims.pages import markdown, summary
from normlab.config.registry import CONFIG_DIR
from tests.claims.ledgers import COMMAND, compared, decided, entries, entry, open_outcome


def section(text, number):
    """Return what the page says of a claim."""
    return text.partition(f"## Claim {number}\n")[2].partition("\n## Claim ")[0]


def test_the_page_says_verdicts_values_and_what_they_rest_on():
    text = markdown(entries())
    counts = "1 supported, 1 contradicted, 1 mixed, 1 undecided, 1 not measured"
    assert f"5 claims: {counts}." in text
    for each in entries():
        assert each.claim.statement in text and each.grades in text
    for said in (
        "-2.27 [-3.45, -1.09] (34.6 against 36.8)",
        "5 seeds, 99 % | 0.001 | 0.012 | **contradicted** (C: Multi30k, 2+2 layers)",
        "[norms/cpu](norms/cpu/records.jsonl): ln, bn",
        "- See also: [results/LOG.md](LOG.md)",
    ):
        assert said in section(text, 2)
    shown, _, folded = section(text, 2).partition("<details>")
    assert "1 [0, 2]" in folded and "1 [0, 2]" not in shown


def test_what_is_not_measured_says_why_and_what_would_measure_it():
    said = section(markdown(entries()), 12)
    assert "There is no task of pictures." in said
    assert f"- words, to measure: `{COMMAND}` (30 runs, about 2.0 h)" in said
    assert "- words, runs that do not count: tested weights chosen by loss: 3" in said


def test_what_is_written_is_escaped():
    odd = "<b>a|b</b>"
    shown = compared("supported", found=odd, detail=odd, setting=odd)
    missing = open_outcome(reason=odd, cost=odd)
    parts = decided("a", shown, statement=odd), decided("b", missing)
    text = markdown([entry(5, *parts, statement=odd, figure=odd)])
    assert all(odd not in line for line in text.splitlines() if line.startswith("| "))


def test_the_links_of_the_committed_page_are_whole():
    results = CONFIG_DIR.parent / "results"
    text = (results / "claims.md").read_text("utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (results / link).exists(), link


@pytest.mark.parametrize(
    ("chinese", "headings"),
    [
        (False, ("True here", "Not true here", "Parts differ", "Tested, but open")),
        (True, ("在此成立", "在此不成立", "各部分结论不同", "已检验，尚无定论")),
    ],
)
def test_the_summary_has_a_claim_once_in_each_language_below_its_verdict(chinese, headings):
    first, *rest = entries()
    named = replace(first, claim=structs.replace(first.claim, chinese="层归一化最好。"))
    half = summary([named, *rest]).split("## 中文")[chinese]
    assert ("层归一化最好。" in half, first.claim.statement in half) == (chinese, not chinese)
    lines = half.splitlines()
    for number, heading in enumerate(headings, 1):
        below = lines[lines.index(f"### {heading} (1)") + 2]
        assert below.startswith(f"- [{number}](claims.md#claim-{number}) ")
        assert half.count(f"[{number}](") == 1


def test_below_a_claim_each_part_has_its_verdict_and_the_grade_of_what_decided_it():
    mixed = entries()[2]
    one, two = (each.part.statement.removesuffix(".") for each in mixed.primary)
    english, chinese = summary([mixed]).split("## 中文")
    assert f"\n  - *true*: {one} (C: Multi30k, 2+2 layers)\n  - *open*: {two}\n" in english
    assert f"\n  - *成立*：{one}（C: Multi30k, 2+2 layers）\n  - *尚无定论*：{two}\n" in chinese
    turned = replace(mixed, primary=mixed.primary[::-1])
    assert summary([turned]) == summary([mixed]), "decided parts come first"
    same = replace(mixed.primary[1], verdict="no difference")
    english, chinese = summary([replace(mixed, primary=(same,))]).split("## 中文")
    assert f"  - *not true, too small a difference*: {two} (" in english
    assert f"  - *不成立，差别太小*：{two}（" in chinese
