"""Formats a claim, or a list of claims, for a terminal in either language (`normlab claims`).

The words are in `templates/language.en.yaml` and `language.zh.yaml`. In Chinese, statements,
answers, verdicts, and the findings of runs and timings are translated; the rest stays in English.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.cells import cell_len, set_cell_size

from normlab.claims.in_words.finding_text import facts_text, grade_text
from normlab.claims.in_words.language import Locale
from normlab.claims.ledger_file import SavedClaim, SavedPart
from normlab.records.labels import one_line
from normlab.terminal import wrapped


def list_lines(claims: Sequence[SavedClaim], language: Locale, width: int) -> list[str]:
    """Return the claims with their verdicts and answers, and how many claims have each verdict."""
    lines: list[str] = []
    for claim in claims:
        statement = language.choose(claim.chinese, claim.statement)
        verdict = _short_verdict(claim.verdict, language)
        lines += _folded(f"[{verdict}] {statement}", width, f"{claim.id:2}  ", "    ")
        lines += _folded(_answer(claim, language), width, "    - ", "      ")
    counts = Counter(claim.verdict for claim in claims)
    tally = [
        language.claims.count.format(count=count, verdict=_short_verdict(verdict, language))
        for verdict, count in sorted(counts.items())
    ]
    return [*lines, "", language.phrasing.comma.join(tally), language.claims.last_of_list]


def mention_lines(
    claims: Sequence[SavedClaim], words: str, language: Locale, width: int
) -> list[str]:
    """Return a line for each claim that has the words in its statement or in that of a part."""
    lines: list[str] = []
    for claim in claims:
        for each in claim.statements_with(words)[:1]:
            statement = one_line(language.choose(each.chinese, each.statement))
            line = f"{claim.id:2}  [{_short_verdict(claim.verdict, language)}] {statement}"
            is_long = cell_len(line) > width
            lines.append(f"{set_cell_size(line, width - 1).rstrip()}\u2026" if is_long else line)
    return [*lines, "", language.claims.last_of_list]


def claim_lines(claim: SavedClaim, language: Locale, width: int) -> list[str]:
    """Return a claim with its answer, its parts, the secondary endpoints, and the records."""
    words, statement = language.claims, language.choose(claim.chinese, claim.statement)
    lines = _folded(words.statement.format(id=claim.id, statement=statement), width)
    lines += _fact_lines(_facts_of_claim(claim, language), language, width)
    for part in claim.parts:
        statement = language.choose(part.chinese, part.statement)
        lines += ["", *_folded(f"{part.part}. {statement}", width, "", "   ")]
        lines += _fact_lines(_facts_of_part(part, language), language, width)
    if words.secondary and claim.secondary:
        lines += ["", words.secondary]
        for part in claim.secondary:
            lines.append(words.for_part.format(part=part.part))
            lines += _fact_lines(_facts_of_part(part, language), language, width)
    records = dict.fromkeys(name for part in claim.parts for name in part.records)
    if words.records and records:
        lines += ["", words.records, *(f"  {name}" for name in records)]
    if any(part.number and len(part.sides) > 1 for part in claim.parts):
        lines += ["", *_folded(words.differences, width)]
    if words.last_of_claim:
        lines += ["", *_folded(words.last_of_claim.format(id=claim.id), width)]
    return lines


def _facts_of_claim(claim: SavedClaim, language: Locale) -> Mapping[str, str]:
    words = language.claims
    articles = (_article_name(name, language) for name in claim.articles)
    word = language.verdicts.get(claim.verdict, "")
    return {
        "answer": _answer(claim, language),
        "verdict": words.verdict.format(ledger=claim.verdict_text, word=word),
        "from": words.place.format(articles=words.comma.join(articles)),
        "value": claim.figure or "",
        "see": words.comma.join(claim.see),
        "literature": claim.literature,
    }


def _facts_of_part(part: SavedPart, language: Locale) -> Mapping[str, str]:
    words, grade = language.claims, grade_text(part, language)
    command = words.to_measure.format(command=part.to_measure, cost=part.cost)
    facts = facts_text(part, language)
    return {
        "verdict": words.part_verdict.format(
            ledger=part.verdict_text,
            word=language.verdicts[part.verdict],
            grade=grade.join(language.phrasing.ends) if grade else "",
        ),
        "question": part.question,
        "found": words.finding.format(ledger=part.finding, facts=facts),
        "test": part.test,
        "excluded": part.excluded,
        "to_measure": command if part.to_measure else "",
    }


def _article_name(name: str, language: Locale) -> str:
    """Return the name of an article, or of a question of our own, in a language."""
    number = name.removeprefix("article ")
    words = language.claims
    return words.article.format(number=number) if number.isdecimal() else words.own_question


def _short_verdict(verdict: str, language: Locale) -> str:
    """Return a verdict on a claim in a word or two."""
    word = language.verdicts.get(verdict, "")
    return language.claims.short_verdict.format(ledger=verdict, word=word)


def _answer(claim: SavedClaim, language: Locale) -> str:
    return language.choose(claim.chinese_answer, claim.answer)


def _fact_lines(facts: Mapping[str, str], language: Locale, width: int) -> list[str]:
    """Return the facts that have a label, each on a line of its own after the label."""
    labels, label_width = language.claims.labels, language.claims.label_width
    rest = " " * (2 + label_width)
    return [
        line
        for name, text in facts.items()
        if text and name in labels
        for line in _folded(text, width, f"  {set_cell_size(labels[name], label_width)}", rest)
    ]


def _folded(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    return wrapped(one_line(text), width, first=first, rest=rest)
