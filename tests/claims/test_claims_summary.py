"""The summary says each claim once in each language, what its parts come to, and nothing else."""

from dataclasses import replace

from normlab.claims.summary import page
from tests.claims.ledgers import compared, entries


def test_a_claim_is_one_line_in_each_language_below_its_verdict():
    english, chinese = page(entries()).split("## 中文")
    for section, headings in (
        (english, ("True (1)", "Not true (1)", "Parts differ (1)", "Tested, and open (1)")),
        (chinese, ("成立 (1)", "不成立 (1)", "各部分结论不同 (1)", "已检验，尚无定论 (1)")),
    ):
        lines = section.splitlines()
        for number, heading in enumerate(headings, 1):
            below = lines[lines.index(f"### {heading}") + 2]
            assert below.startswith(f"- [{number}](claims.md#claim-{number}) ")
            assert section.count(f"[{number}](") == 1


def test_a_mixed_claim_names_its_parts_by_verdict_and_says_its_grade():
    mixed = entries()[2]
    parts = [each.part.statement.removesuffix(".") for each in mixed.parts]
    english, chinese = page([mixed]).split("## 中文")
    assert f"(*true*: {parts[0]}; *open*: {parts[1]}; grade " in english
    assert f"(*成立*: {parts[0]}；*尚无定论*: {parts[1]}；证据 " in chinese


def test_a_statement_is_said_in_chinese_where_its_file_has_that():
    first = entries()[0]
    named = replace(first, claim=replace(first.claim, chinese="层归一化最好。"))
    english, chinese = page([named]).split("## 中文")
    assert first.claim.statement in english and "层归一化最好。" not in english
    assert "层归一化最好。" in chinese and first.claim.statement not in chinese


def test_a_grade_is_that_of_the_decided_parts_as_in_the_ledger():
    first, *_ = entries()
    part = first.parts[0]
    weaker = replace(part, primary=compared("undecided"))
    found = replace(first, parts=(part, weaker))
    assert (found.letters, found.grades) == ("D", "D")
    assert "grade D)" in page([found]) and "grade C" not in page([found])
    assert "grade" not in page([replace(first, parts=(weaker,))]).partition("- [1]")[2]


def test_where_no_difference_is_found_the_statement_is_said_to_be_untrue():
    mixed = replace(entries()[2])
    same = replace(mixed.parts[1], primary=compared("no difference"))
    english, chinese = page([replace(mixed, parts=(mixed.parts[0], same))]).split("## 中文")
    assert (
        f"; *not true (no difference beyond the margin)*: {same.part.statement[:-1]}; grade "
        in english
    )
    assert "；*不成立（差别未超出界限）*: " in chinese
    # Of a claim that is not true the parts are named, too, where the margin decides one.
    assert "*not true (no difference beyond the margin)*: " in page([entries()[1]])
