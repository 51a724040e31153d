"""The summary says each claim once in each language, what its parts come to, and nothing else."""

from dataclasses import replace

from msgspec import structs

from normlab.claims.pages import markdown
from normlab.claims.summary import page
from tests.claims.ledgers import COMMAND, compared, entries


def test_a_claim_is_one_line_in_each_language_below_its_verdict():
    english, chinese = page(entries()).split("## 中文")
    for section, headings in (
        (
            english,
            ("True here (1)", "Not true here (1)", "Parts differ (1)", "Tested, and open (1)"),
        ),
        (chinese, ("在此成立 (1)", "在此不成立 (1)", "各部分结论不同 (1)", "已检验，尚无定论 (1)")),
    ):
        lines = section.splitlines()
        for number, heading in enumerate(headings, 1):
            below = lines[lines.index(f"### {heading}") + 2]
            assert below.startswith(f"- [{number}](claims.md#claim-{number}) ")
            assert section.count(f"[{number}](") == 1


def test_below_a_claim_each_part_has_its_verdict_and_the_grade_of_what_decided_it():
    mixed = entries()[2]
    one, two = (each.part.statement.removesuffix(".") for each in mixed.parts)
    english, chinese = page([mixed]).split("## 中文")
    assert f"\n  - *true*: {one} (C: Multi30k, 2+2 layers)\n  - *open*: {two}\n" in english
    assert f"\n  - *成立*：{one}（C: Multi30k, 2+2 layers）\n  - *尚无定论*：{two}\n" in chinese
    turned = replace(mixed, parts=mixed.parts[::-1])
    assert page([turned]) == page([mixed]), "decided parts come first"


def test_a_statement_is_said_in_chinese_where_its_file_has_that():
    first = entries()[0]
    named = replace(first, claim=structs.replace(first.claim, chinese="层归一化最好。"))
    english, chinese = page([named]).split("## 中文")
    assert first.claim.statement in english and "层归一化最好。" not in english
    assert "层归一化最好。" in chinese and first.claim.statement not in chinese


def test_where_no_difference_is_found_the_statement_is_said_to_be_untrue():
    mixed = entries()[2]
    same = replace(mixed.parts[1], primary=compared("no difference"))
    english, chinese = page([replace(mixed, parts=(mixed.parts[0], same))]).split("## 中文")
    said = same.part.statement[:-1]
    assert f"  - *not true, too small a difference*: {said} (" in english
    assert f"  - *不成立，差别太小*：{said}（" in chinese


def test_the_ledger_lists_what_would_decide_the_rest_a_line_a_command():
    head, _, rest = markdown(entries()).partition("## What would decide the rest\n")
    table = rest.partition("## Claim")[0]
    assert head and table.count(f"`{COMMAND}`") == 1
    assert "30 runs, about 2.0 h" in table
    decided = [replace(each, parts=each.parts[:1]) for each in entries()[:2]]
    assert "What would decide" not in markdown(decided)
