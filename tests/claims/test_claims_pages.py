"""The pages of the ledger say what the evidence says, escape it, and are always the same."""

import re
from dataclasses import replace

import pytest
from msgspec import structs

from normlab.claims.pages import html, markdown
from normlab.claims.summary import page as summary
from normlab.config.registry import CONFIG_DIR
from tests.claims.ledgers import (
    COMMAND,
    compared,
    decided,
    entries,
    entry,
    made,
    open_outcome,
)
from tests.html_text import Text

MINUS = "\N{MINUS SIGN}"
VERDICTS = ("supported", "contradicted", "mixed", "undecided", "not measured")


def section(text, number):
    """Return what the page for a browser says of a claim."""
    claim = rf'<li class="claim [^"]*" id="claim-{number}".*?</details>\n</li>\n'
    (found,) = re.findall(claim, text, re.S)
    return found


def test_the_page_for_a_browser_says_all_that_the_markdown_says():
    text = Text(made()).text.replace(MINUS, "-").replace("\N{EN DASH}", "-")
    assert "Each of 5 claims" in text and all(f" 1 {name} " in text for name in VERDICTS)
    for each in entries():
        assert each.claim.statement in text and each.by_parts in text and each.grades in text


def test_a_contrast_shows_difference_means_p_and_its_correction_seeds_and_records():
    found = Text(section(made(), 2))
    for said in (
        f"{MINUS}2.27 [{MINUS}3.45, {MINUS}1.09]",
        "34.6 against 36.8",
        "p 0.001, corrected 0.012",
        "5 seeds, 99 %",
    ):
        assert said in found.text
    assert "norms/cpu/records.jsonl" in found.links and "LOG.md" in found.links
    assert "norms/ cpu : ln, bn" in found.text
    assert "[norms/cpu](norms/cpu/records.jsonl): ln, bn" in markdown(entries())


def test_secondary_evidence_is_folded_away():
    shown, _, folded = section(made(), 2).partition('<details class="more">')
    assert "1 secondary, never counted" in Text(folded).text and "1 [0, 2]" in Text(folded).text
    assert "1 [0, 2]" not in Text(shown).text
    text = markdown(entries())
    assert text.count("<details>") == text.count("</details>") == 1
    assert "1 [0, 2]" in text.partition("<details>")[2].partition("</details>")[0]


def test_what_is_not_measured_says_why_and_what_would_measure_it():
    said = Text(section(made(), 12)).text
    assert "There is no task of pictures." in said
    assert COMMAND in said and "30 runs, about 2.0 h" in said
    assert "decides nothing: tested weights chosen by loss: 3" in said
    text = markdown(entries())
    assert f"- words, to measure: `{COMMAND}` (30 runs, about 2.0 h)" in text
    table = text.partition("## What would decide the rest\n")[2].partition("## Claim")[0]
    assert table.count(f"`{COMMAND}`") == 1 and "30 runs, about 2.0 h" in table
    done = [replace(each, primary=each.primary[:1]) for each in entries()[:2]]
    assert "What would decide" not in markdown(done)


def test_what_is_written_is_escaped_and_code_is_code():
    odd = "<b>&\"'</script><img src=x onerror=alert(1)>"
    shown = compared("supported", found=odd, detail=odd, setting=odd, records=(f"results/{odd}/s",))
    missing = open_outcome(reason=odd, command=odd, cost=odd, excluded=(odd,))
    parts = decided("a", shown, statement=odd), decided("b", missing)
    strange = entry(5, *parts, statement=odd, figure=odd, literature=odd, see=(odd,))
    read = Text(html([strange], text="claims.md"))
    assert not {"b", "img"} & {tag for tag, _ in read.tags}
    assert not any("onerror" in attributes for _, attributes in read.tags)
    assert read.text.count(odd) >= 10
    text = html([entry(1, literature="`a<b` is less")], text="claims.md")
    assert "<dd><code>a&lt;b</code> is less</dd>" in text


def test_the_links_of_the_committed_page_are_whole():
    results = CONFIG_DIR.parent / "results"
    text = (results / "claims.md").read_text("utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (results / link).exists(), link


def test_links_within_the_page_for_a_browser_are_whole():
    read = Text(made())
    names = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert {link[1:] for link in read.links if link.startswith("#")} <= set(names)
    assert all(not re.match(r"[a-z]+:|//", link) for link in read.links)


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
